"""Whom a broker believes what it did not see, and what it does about lies.

`epochs` bounds the numbers by which the later statement wins by the wall clock; `contradictions` notes what others said
in this broker's name, until what was missed meanwhile is asked for (`durable.missed`). `signatures` says what brokers
sign of what they say; `proof_store` keeps the signatures that are passed on (`core.signing`, `core.vetting`).
May import: wire, boundary.
"""
