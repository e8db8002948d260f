"""One broker process put together: start and stop order, clock, entrance, monitoring and locator.

`node` builds and ends the parts; `driver` gives inputs to the core and carries out its effects; `process` handles
signals and exit codes; `running` lets commands find a broker; `entrance` tells brokers from clients by their first
bytes; `renewal` makes a core anew whose state is in doubt, `quarantine` keeps the frames that led to it; `http` and
`metrics` serve monitoring; `locator` ranks brokers for clients; `map_view` prints the map; `staging_release` publishes
staged batches.
May import: every room of the runtime.
"""
