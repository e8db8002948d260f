"""Durable subscriptions when their home broker is lost: a standby broker holds copies and takes over.

`primary` is the home's side: it chooses standbys and tells them every change. `standby` is the other side: it keeps
the state, waits for the home, and takes its place. `backlog` hands the new home the events that others still keep for
the old one. `service` puts the three together.
Moving with a living client is in `durable.handover`; second copies of a publisher's events are in `publishing`.
May import: what `durable` may, and `durable`.
"""
