"""Offers of applications: service types, registry, resolver, and traders that ask each other.

`offers` turns an offer into an advertisement and back; `service_types` says what an offer must have; `trader`,
`federation` and `messages` look in linked domains; `domains` tells which unit is a domain.
May import: `structured`, `wording`, dictionary.
"""
