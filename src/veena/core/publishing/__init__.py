"""Where an event is accepted: publishers, the event log with its cursors, second copies, and back-pressure.

`publishers` checks, stamps and sends what a client publishes, alone or in bursts. `Origin` in `log` gives an event its
place in the log, keeps it until every unit is served, sends it again and makes what expires a dead letter; `cursors`
say how far each unit is served. `replica_sender` and `replica_holder` keep a copy at a second broker; `backpressure`
pauses publishers; `batch_release` turns staged rows into events.
Passing copies on at brokers on the way is in `routing`; delivery to clients here is in `delivery`; what is kept for
durable subscriptions is in `durable`.
May import: all rooms from wire to routing, and journal.
"""
