"""The audit: what was promised to each client against what was delivered, from an archive.

`client` judges one client's promises, `tables` and `facts` bring rows together on Spark, `verdict` says why
something is missing, `hops` finds units entered in vain, `report` writes HTML.
Latency, throughput and load are in `analyze`.
May import: log, launch, source, archive, matching.
"""
