"""The protocols as pure state machines: time, chance and bytes are arguments, no IO happens here.

Each room decides about one subject and its sign says which. At the top stand the modules that compose the rooms:
`broker` gives each input to the parts and collects effects, `event_side` connects the parts that handle events,
`schedule` says which parts have work and when the broker wakes, `startup` delays links until the broker's identity is
on disk, `reachability` reports which units were found or lost, `statistics` gathers the counters. `journal` records
what happened to events for trace, explain and audit.
The order of the rooms is in `docs/ARCHITECTURE.md`; `tests/test_tidy.py` holds it.
"""
