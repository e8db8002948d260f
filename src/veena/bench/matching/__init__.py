"""How fast the matching engines are beside a scan of all profiles: workloads, ratios, bars and the paper's figures.

May import: the modules at the top of bench.
"""
