"""Messages between distant brokers, which travel as ordinary events.

`kinds` lists every message with its encoding (move, standby, hand-over, replay, question, answer ...); `Post` in
`mailbox` publishes one and hands an arriving one to whoever deals with its kind; `addresses` makes and reads the ids
that address a broker, everybody in a unit, or one conversation. `pace` says when what is told to many goes out.
What a message makes a broker do is in the room of its subject (`durable`, `sessions`, `explain`).
May import: wire, boundary, trust, topology, links.
"""
