"""Figures and history of a network from its archive: latency, throughput, hops, topics, subscribers.

`analyze` computes groups and percentiles, `frames` prepares the DataFrames, `live` does it by windows while brokers
run, `report` prints and draws. `history` tells what a client consumed or who wanted what; `adverts` stores and queries
snapshots of advertisements. Whether deliveries were right is decided in `audit`.
May import: log, launch, source, archive, matching, audit.
"""
