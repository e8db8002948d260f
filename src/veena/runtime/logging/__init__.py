"""What a process says of itself on standard error, and how much memory it has.

`Log` writes one line an occurrence, as text or JSON, and bounds the lines that strangers cause; `audit` writes every
decision about access into a file of its own; `memory_bytes` asks the operating system.
Counters for Prometheus are in `broker.metrics`.
May import: supervision.
"""
