"""How long one step of a broker's event loop takes, for every action of clients and neighbours at its largest size.

`host` is the broker's process, `stage` runs actions against it and keeps what each took, `clients`, `questions`,
`neighbours`, `operators` are the actions. It may import what a user's program may, and frames.
"""
