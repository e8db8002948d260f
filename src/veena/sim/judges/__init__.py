"""Judges of a run: who was entitled to which event, who got it, once and in order, and what it cost in crossings.

One judge for each kind of client in `clients`; `lost_disks` says what a lost broker may excuse; `crossings` counts.
May import: networks, world, clients.
"""
