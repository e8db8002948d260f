"""Where Spark finds `format("veena")` by itself: it imports every top-level module whose name begins with `pyspark_`.

    spark.read.format("veena").option("url", "veena://127.0.0.1:7700").load()
    spark.readStream.format("veena").option("url", ...).option("table", "deliveries").load()
    frame.write.format("veena").option("url", ...).mode("append").save()

Spark imports this in every session that uses any source in Python, so it is small: the rest comes when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """The tables of a Veena network; see `veena.spark.source.options` for the options."""

    @classmethod
    def name(cls) -> str:
        return "veena"

    def schema(self) -> str:
        from veena.spark.log.tables import TABLES
        from veena.spark.source.options import parse

        options = parse(self.options)
        return ", ".join(f"`{name}` {TABLES[options.table][name]}" for name in options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        from veena.spark.source.batch import FilteringReader, VeenaReader
        from veena.spark.source.options import parse

        options = parse(self.options)
        return (FilteringReader if options.push_filters else VeenaReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from veena.spark.source.options import parse
        from veena.spark.source.stream import VeenaStreamReader

        return VeenaStreamReader(parse(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from veena.spark.sink.sink import writer

        return writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from veena.spark.sink.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
