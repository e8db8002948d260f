"""A broker's tables as blocks of columns for outside readers such as Spark.

`columns` lays values out with NumPy and cuts blocks into frames; `events` and `records` read ranges of the store as
columns; `row_filter` drops rows that the reader did not ask for or may not read; `reader` answers one question in a
thread. The conversation with a reader (limits, next block, errors) is in `clients.table_service`.
May import: supervision, logging, networks, transports, pki, links, fleet, store, access.
"""
