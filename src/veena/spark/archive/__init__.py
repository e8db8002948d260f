"""The archive: Parquet files by table and day that hold every row of a network's logs once.

`archive` runs and reads it, `table` writes one table by a streaming query, `files` writes Parquet in workers,
`manifest` lists the committed files, `compact` merges small ones.
What is computed from an archive is in `audit`, `analyze`, `matching` and `sink.replay`.
May import: log, launch, source.
"""
