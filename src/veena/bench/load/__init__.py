"""One broker, or a line of brokers, under load over plain sockets: rate, latency and memory.

`generator` makes load in closed loops or at a pace, `client` speaks Veena's frames, `broker` and `network` measure.
May import: matching.
"""
