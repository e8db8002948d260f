"""Simulated clients and what they do: populations, publishers and receivers, durable, shared, slow and roaming ones.

Each module plays one kind of client in a world and records what it received. Who was entitled to what is decided in
`judges`.
May import: networks, world.
"""
