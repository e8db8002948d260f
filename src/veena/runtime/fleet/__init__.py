"""A whole network on this machine: one process a broker, each with its configuration, log and data.

`Fleet` writes configurations, starts processes, reads what they print and restarts them; `control` is the socket by
which a running fleet is asked for one more broker or link.
One broker as a process is in `broker.process`; the network file is in `networks`.
May import: supervision, logging, networks, transports, pki, links.
"""
