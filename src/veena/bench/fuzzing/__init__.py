"""Fuzzing of a real broker, an honest client beside it: frames of clients and links, WebSocket, HTTP, configurations.

`drawing` makes frames by their types, `corpus` reads those that once did harm, `attackers` send them from a process of
their own, `loads` send honest traffic of the same size in their place, `trial` runs one door and judges.

May import: endurance.
"""
