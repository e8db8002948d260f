"""One link to one neighbour: greeting, order, send queues, heartbeats, suspicion and load.

`Link` is its state machine and makes the connection's id; `channel` numbers frames, repeats lost ones and drops
repeats; `lanes` queues events by priority, drops expired ones and takes cancelled ones out; `monitor` judges which
neighbours are suspected and what each link costs now; `claimants` decides between two links of one address; `relay`
carries control frames hop by hop to brokers that are not neighbours.
What the frames mean is decided above: maps in `topology`, duties of events in `routing`.
May import: wire, boundary, trust, topology.
"""
