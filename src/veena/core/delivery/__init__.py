"""The last step at a broker: which local sessions get an event, once and in order, and the queues in front of clients.

`Ends` in `delivery` drops duplicates, merges repeated streams, checks order, expiry and scope; `match_cache`
remembers what was decided about an event like this one; `session_queue` bounds what waits for a slow client;
`evaluations` gives out what costs too much for the loop, and `held_streams` keeps events for one session until that is
evaluated; `fast_path` hands whole bursts of plain events to local clients; `inherited` and `delivered_runs` remember
what a session received before. `in_flight` is the record of one event that is on its way through this broker.
Which constraints match is asked of `interest.subscriptions`; copies to other brokers are in `routing`; events kept
for absent clients are in `durable`; a publisher's order is checked in `publishing.publishers`.
May import: all rooms from wire to interest, and journal.
"""
