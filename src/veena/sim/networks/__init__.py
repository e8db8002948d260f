"""Networks as graphs, without brokers: drawn from a seed, measured, pictured, and the cost of an event by other means.

`generate` and `growth` make networks; `drawing` pictures them; `baselines`, `steiner_trees` and `whole_view` compute
ways and costs as somebody would who sees the whole network.
May import: no other room of the simulator.
"""
