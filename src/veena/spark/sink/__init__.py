"""From Spark to the network: rows become published events, each batch whole and once.

`sink` is the writer of `format("veena")`; `rows` checks columns and makes events; `staging_client` stages and publishes
a batch at a broker. `replay` publishes a part of an archive again in order of time; `replay_rows` makes its events.
May import: all rooms from log to scale.
"""
