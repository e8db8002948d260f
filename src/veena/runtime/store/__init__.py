"""The disk of a broker: one SQLite file with the event log, cursors, registrations, advertisements and records.

`Store` is its face; `writer` is the thread that commits batches; `rows` turns writes of the core into rows; `query`
reads for restarts and history; `schema` makes and migrates tables; `retention` and `trim` delete the oldest rows;
`repair` looks for damage and `faults` words what SQLite reports; `recorder` adds best-effort events to the history;
`audit_rows`, `audit_records` and `trace` keep what audits and `explain` need; `adverts`, `positions` and `staging`
read and write the tables of their subjects.
What must be written is decided in `veena.core.boundary.stored`; rows for outside readers are made in `export`.
May import: supervision, logging, networks, transports, pki, links, fleet.
"""
