"""How brokers and units join, get addresses, and find each other again.

`admission` answers requests for a place, `join` makes them, `registrar` gives identifiers and `slots` keeps gateways
free; `validation` refuses impossible requests; `renumbering` gives a merged unit its new number; `redial` decides who
dials whom when a unit fell apart; `gateway_directory` knows brokers of other units. `protocol` has the vocabulary and
rules; `service` puts the parts together and sends their answers and frames.
Frames are in `wire.membership`; maps of connections in `topology`; the dialling of sockets in `veena.runtime.links`.
May import: wire, boundary, trust, topology, links, interest.
"""
