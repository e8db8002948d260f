"""The hierarchy at a million brokers, computed as arrays on Spark: routes, copies, load, stored profiles.

`network` and `interest` make networks and subscribers from numbers; `routes` applies the rules of routing to arrays;
`scale` runs the job; `report` shows it. No real broker or archive is read.
May import: all rooms from log to bench.
"""
