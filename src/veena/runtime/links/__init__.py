"""The ends of a broker's links: frames over streams, dialling with back-off, and whose links are accepted.

`Links` dials and accepts neighbours and forgets lost ones; `LinkEnd` turns bytes into frames, writes once a turn and
measures how full the way out is; `Trust` decides by certificate, name and address who may be a neighbour, and where
brokers may be dialled.
Order, heartbeats and suspicion are decided in `veena.core.links`; connections of clients are in `clients`.
May import: supervision, logging, networks, transports, pki.
"""
