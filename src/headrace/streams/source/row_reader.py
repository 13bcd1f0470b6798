"""Records into the rows a user asked for: value fields, and columns about the record.

A column whose name is in `ABOUT` tells of the record itself; every other is a field
of its JSON value. Only what was asked for is decoded.
"""

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.errors import ConfigError, RequestError
from headrace.records import Records, lay_out
from headrace.streams.decode.json_values import Parsed, check_fields, parse_json
from headrace.streams.offsets import Range

__all__ = ["ABOUT", "CORRUPT", "RAW_SCHEMA", "RowReader"]

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
CORRUPT = "_corrupt"
ABOUT: Mapping[str, DataType] = {
    "_topic": StringType(),
    "_partition": IntegerType(),
    "_offset": LongType(),
    "_timestamp": TimestampType(),
    "_key": BinaryType(),
    "_value": BinaryType(),
    "_headers": _HEADERS,
    CORRUPT: StringType(),
}
RAW_SCHEMA = StructType([StructField(name, kind) for name, kind in ABOUT.items() if name != CORRUPT])

_DECODED = {"_timestamp": "timestamp", "_key": "key", "_value": "value", "_headers": "headers"}


class RowReader:
    """Turns raw record batches into Arrow batches of one schema; raises ConfigError on a bad schema."""

    def __init__(self, schema: StructType) -> None:
        for field in schema.fields:
            if field.name in ABOUT and field.dataType.simpleString() != ABOUT[field.name].simpleString():
                raise ConfigError(
                    f"column {field.name!r} is of type {ABOUT[field.name].simpleString()}, "
                    f"not {field.dataType.simpleString()}"
                )
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._fields = pa.schema([field for field in self._schema if field.name not in ABOUT])
        if len(self._fields):
            check_fields(self._fields)
        self._decoded = {name: column for name, column in _DECODED.items() if name in self._schema.names}

    def read(self, run: memoryview, span: Range) -> pa.RecordBatch:
        """The rows of the records in `run` that lie in the range.

        A value that is not JSON of the schema gives a row of nulls with the reason in
        `_corrupt`; without that column it raises RequestError, since it would be lost.
        """
        records = lay_out(run, start_offset=span.start, end_offset=span.end)
        parsed = self._parse(records, span)
        found = self._about(records, span, parsed)
        found |= dict(zip(self._fields.names, parsed.columns, strict=True))
        columns = [found[field.name].cast(field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _parse(self, records: Records, span: Range) -> Parsed:
        if not len(self._fields):
            none = pa.nulls(len(records), pa.string())
            return Parsed((), none, none)
        parsed = parse_json(records.values, self._fields)
        if parsed.bad_count and CORRUPT not in self._schema.names:
            row = next(row for row, reason in enumerate(parsed.reasons) if reason.is_valid)
            raise RequestError(
                f"{span.topic}-{span.partition}: the value at offset {records.offsets[row]} is not JSON of "
                f"the schema: {parsed.reasons[row]} Add the column `{CORRUPT} string` to the schema to keep "
                "such records as rows and go on"
            )
        return parsed

    def _about(self, records: Records, span: Range, parsed: Parsed) -> dict[str, pa.Array]:
        count = len(records)
        found = {name: records.column(column) for name, column in self._decoded.items()}
        found["_offset"] = records.column("offset")
        found["_topic"] = pa.repeat(pa.scalar(span.topic), count)
        found["_partition"] = pa.repeat(pa.scalar(span.partition, pa.int32()), count)
        found[CORRUPT] = parsed.reasons
        return found
