"""Reading brokers' tables from a plain program, without Spark: connection, questions, and blocks as Arrow.

`connection` dials, greets and waits for answers; `LogClient` in `client` reads ranges of offsets and tries again;
`blocks` makes Arrow batches; `filters` says which comparisons a broker can test; `tables` lists columns.
Spark's readers, which use this, are in `source`.
May import: no other room of spark.
"""
