"""Subscriptions that outlive a session: what is kept for them, who reads it, and how they follow their client.

`registry` is the list of them, `subscription` the state of one, `cursor` what was handed over and acknowledged.
`intake` keeps events, `redelivery` hands them over. `handover` moves a subscription to the client's new broker;
`home_registry` tells where each is kept. `replay` serves `since=T` from the logs; `groups` shares one subscription
among members, `group_turns` deals its events out, `group_denials` remembers what members may not read.
Standby and take-over when a home is lost are in `failover`; requests of the client are read in `sessions`.
May import: all rooms from wire to publishing, and journal.
"""
