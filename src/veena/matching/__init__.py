"""The matching engines: pure, no IO. `create(name)` gives one of the registered engines."""
