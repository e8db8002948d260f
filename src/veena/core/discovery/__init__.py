"""Advertisements and queries: clients say what they offer, others find it by SQL, XPath or constraints.

`advertisement` checks one, `store` and `index` hold and find them, `query` parses and answers SELECT, `open_queries`
gathers partial answers for the asker. `doubts` has the worker judge what an XPath costs too much on. `home_registry`
keeps the advertisements of this broker's clients with their leases; `controller` gathers those of a whole unit;
`orphaned` keeps what an absent broker left; `persistence` says what is on disk. `service` puts the parts together.
Subscriptions of clients are in `interest`; the frames are in `wire.discovery`.
May import: wire, boundary, trust, topology, links, interest, membership.
"""
