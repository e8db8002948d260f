"""Brokers' explanations in simulated runs, each held against an oracle that saw everything.

`witness` and `evidence` record a run; `truth`, `stays` and `doubt` say what became of an event; `oracle` judges an
answer, `lies` tests the oracle, `questions` asks during runs.
May import: networks, world, clients, judges, runs.
"""
