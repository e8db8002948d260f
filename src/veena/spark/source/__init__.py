"""`format("veena")` for reading: options, offsets, partitions, batch and stream readers, and filter push-down.

`options` parses what the user wrote; `brokers` finds brokers and the length of their logs; `offsets` shares ranges out;
`task` reads one range in a worker; `batch` and `stream` are Spark's reader classes; `pushdown` decides which
filters a broker tests and which are left to Spark.
The protocol with one broker is in `log`; the Parquet archive is in `archive`; writing is in `sink`.
May import: log, launch.
"""
