"""Who wants what: subscriptions of clients here, and what each other unit asked for.

Upwards: `subscriptions` (sessions, which client matches), `cover_set`, `quota`, `speaker` and `announced` decide what
a unit tells others; `digest` shortens it. Inwards: `table` and `interest_map` hold what other units want and answer
"which units want this event"; `leases` tells which units are alive. `receipts` and `receipt_sender` gather who has
heard it, and `activation` says how far a subscription is active. `gateway_export` and `gateway_filter` do this at links
between larger units. `constraint` is one stored constraint. No event is stored or sent here.
May import: wire, boundary, topology, links, messages, journal.
"""
