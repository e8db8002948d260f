"""Whole runs: one seed from its options to its report, with faults drawn from the seed, and many seeds in processes.

`run` does one seed, `faults` and `newcomers` disturb it, `soak` and `workers` run many, `story` is the demonstration.
May import: networks, world, clients, judges.
"""
