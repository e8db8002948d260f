"""One broker process put together: start and stop order, clock, entrance, monitoring and locator.

`node` builds and ends the parts; `driver` gives inputs to the core and carries out its effects; `process` handles
signals and exit codes; `running` lets commands find a broker; `entrance` tells brokers from clients by their first
bytes; `http` and `metrics` serve monitoring; `locator` ranks brokers for clients; `map_view` prints the map;
`staging_release` publishes staged batches.
May import: every room of the runtime.
"""
