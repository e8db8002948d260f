"""Streams of bytes: TCP, TLS, WebSocket and in-memory, behind two functions `listen` and `connect` (`registry`).

`stream` is the protocol that all keep: write, pause, resume, close. `accepting` takes connections from listening
sockets; `strangers` bounds those whose other end is not known yet. `url` parses addresses to listen on or dial; `tls`
loads certificates into contexts, `certificate` says when one is good no more, and `secret_files` refuses keys that
others can read. `senders` tells the other ends of connections apart. Here are asyncio protocols, handshakes and
buffers, but no frames. Frames over a stream are in `links` (brokers) and `clients` (clients).
May import: supervision, logging, networks.
"""
