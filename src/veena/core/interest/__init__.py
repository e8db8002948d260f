"""Who wants what: subscriptions of clients here, and what each other unit asked for. No event is stored or sent here.

Upwards: `subscriptions` (clients' sessions, which of them match), `cover_set`, `quota`, `speaker` and `announced`
decide what a unit tells others; `digest` and `split_digests` shorten it. Inwards: `table` (of `table_row`) and
`interest_map` hold what other units want and answer "which units want this event"; `leases` tells which units live.
`receipts` and `receipt_sender` gather who has heard it; `activation` says how far a subscription is active.
`gateway_export` and `gateway_filter` do this at links between larger units. `recipient_engine` finds clients that an
event names; `eligibility` checks their devices; `constraint` is one stored constraint; `service` joins the parts.
May import: wire, boundary, trust, topology, links, messages, journal.
"""
