"""What every engine is: the abstract `Engine`, snapshots, counting of destinations, and engines of exact values.

`engine` has the contract (add, remove, match, destinations, explain, snapshot), checks of profiles and snapshots, and
`DestinationCounts`. `exact` is the engine for constraints that are one value in a dictionary. `work` counts what
matching costs and holds it against a budget.
May import: no other room of matching.
"""
