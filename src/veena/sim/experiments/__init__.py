"""The papers' experiments in the simulator: crossings of links, and discovery beside one database and floods.

Each experiment has a module that measures and one that shows the result.
May import: networks, world, clients, judges, runs.
"""
