"""A broker's configuration file: its sections with defaults, and a reader that reports each fault with its line.

`schema` has the sections and what may change on reload; `reader` parses TOML, checks files, doors and TLS settings.
The users file is read in `access.users`, the network file in `networks.file`.
May import: all rooms from supervision to locator.
"""
