"""How copies of an event get to other units: duties, next copies, acknowledgements, holding back and sending again.

`Router` takes a copy, splits its destinations over next hops, answers the upstream when all is done, and sends again
when a link or a hop is lost; `resending` does that in slices. `duties` counts what is open and who claims it;
`hold_back` refuses a unit without a way or room until it opens again; `burst_router` does the same for bursts of
best-effort events, `run_router` for bursts of reliable ones, of which `runs` and `sent_runs` keep one record each.
Which hop leads to a unit is in `topology.next_hops`; the log of the accepting broker is in `publishing`.
May import: all rooms from wire to delivery, and journal.
"""
