"""The shape of the network as one broker knows it, and which way a copy goes next.

`connection_table` spreads and corrects news of connections (the gateway propagation protocol). `network_map` is the
graph made from it; `paths` finds cheapest paths; `next_hops` finds the next hop to a unit and caches it;
`controllers` tells gatekeepers and controllers of a unit. Costs, edges, vertices, reachability, levels.
The state of one link (greeting, heartbeat, queues) is in `links`; who wants what is in `interest`.
May import: wire, boundary, trust.
"""
