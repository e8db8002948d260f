"""Latency in a collaboratory by number of users, with aggregation and without, over lines with set delays and rates.

May import: matching, load, latency.
"""
