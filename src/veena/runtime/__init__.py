"""The only home of sockets, disk and clock: what turns the core's state machines into processes.

From low to high: `supervision` (no thread or task ends unseen), `logging`, `steps` (how long the event loop is held
up), `toml_text` (reading TOML), `networks` (files and graphs), `transports` (streams of bytes), `links` (between
brokers), `fleet` (brokers as processes), `store` (SQLite), `access` (users and rights), `export` (tables as columns),
`locator`, `config`, `clients` (their connections), and `broker`, which puts one broker together.
"""
