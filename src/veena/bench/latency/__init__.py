"""The papers' latency experiment on real brokers: cells, the unmeasured crowd, the run, and the report.

May import: matching, load.
"""
