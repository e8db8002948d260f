"""Networks on paper: the network file, and what can be computed from it before any broker runs.

`file` reads and writes the TOML with errors that name the line; `model` has brokers, links, partitions, gatekeepers
and articulation points; `statistics` computes path length and clustering; `rewire` proposes links; `layout` places
units and brokers on a picture. Pure functions over graphs, without sockets.
The map that a running broker has is in `veena.core.topology`; starting such a network is in `fleet`.
May import: supervision, logging.
"""
