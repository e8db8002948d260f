"""Bulk matching on Spark: which profiles do stored or streaming events satisfy.

`bulk` runs the brokers' own engines in workers, `exact` joins topics and integers, `snapshot` reads and ships profiles,
`profiles` loads them from files or history, `rows` turns rows into events, `stream` matches micro-batches, `job` goes
from files to files. The engines themselves are in `veena.matching`.
May import: log, launch, source, archive.
"""
