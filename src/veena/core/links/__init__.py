"""One link to one neighbour: greeting, order, send queues, heartbeats, suspicion and load.

`Link` is its state machine; `channel` numbers frames, repeats lost ones and drops repeats; `lanes` queues events by
priority and drops the oldest; `monitor` judges which neighbours are suspected and what each link costs now; `relay`
carries control frames hop by hop to brokers that are not neighbours.
What the frames mean is decided above: maps in `topology`, duties of events in `routing`.
May import: wire, boundary, topology.
"""
