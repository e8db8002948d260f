"""The only home of sockets, disk and clock."""
