"""Writes valid requests from kio's schemas and remembers where every length stands.

A mutation that hits a length is worth a thousand that hit a byte of text; to
aim at them one must know where they are, which no ordinary encoder tells.
"""

import dataclasses
import random
import struct
from dataclasses import dataclass
from types import NoneType
from typing import Any, get_args, get_origin

from clients.raw import batch_of, schema
from kio.static.constants import EntityType

_FORMATS = {
    "int8": ">b",
    "int16": ">h",
    "int32": ">i",
    "int64": ">q",
    "uint8": ">B",
    "uint16": ">H",
    "uint32": ">I",
    "uint64": ">Q",
    "timedelta_i32": ">i",
    "timedelta_i64": ">q",
    "datetime_i64": ">q",
    "error_code": ">h",
}
BATCH = batch_of([b"one", b"two"])
GROUPS = ["fuzz-a", "fuzz-b", ""]
TEXTS = ["", "x", "consumer", "range", "1", "retention.ms", "größe"]
# Names that exist, and names that cannot: a fuzzer that creates topics would measure its own success.
TOPICS = {
    "create_topics": ["a/b", "", "fuzz"],
    "create_partitions": ["missing"],
    "delete_topics": ["missing", ""],
}


@dataclass(frozen=True, slots=True)
class Length:
    """A length in a frame: where it stands, how many bytes it takes and how it is written."""

    position: int
    size: int
    form: str  # "int16", "int32" or "uvarint"
    of: str  # "array", "text" or "tags"


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@dataclass(frozen=True, slots=True)
class Array:
    """An array with one item: its length, and where the item starts and ends."""

    length: Length
    start: int
    end: int


class FrameWriter:
    """One request, its values chosen by `choose`; `data` leaves out the frame's own length."""

    def __init__(
        self, api: str, api_key: int, version: int, choose: random.Random, *, items: int = 1
    ) -> None:
        self.data = bytearray()
        self.lengths: list[Length] = []
        self.arrays: list[Array] = []
        self._api = api
        self._choose = choose
        self._items = items
        kind = schema(api_key, version, EntityType.request)
        self._header(kind, api_key, version)
        self._structure(kind)

    def _header(self, kind: type[Any], api_key: int, version: int) -> None:
        self.data += struct.pack(">hhi", api_key, version, self._choose.randrange(1 << 31))
        self._length(4, "int16", "text")
        self.data += b"fuzz"
        if kind.__header_schema__.__flexible__:
            self._length(0, "uvarint", "tags")

    def _length(self, value: int, form: str, of: str) -> None:
        encoded = uvarint(value) if form == "uvarint" else struct.pack(_FORMATS[form], value)
        self.lengths.append(Length(len(self.data), len(encoded), form, of))
        self.data += encoded

    def _structure(self, kind: type[Any]) -> None:
        for field in dataclasses.fields(kind):
            if "tag" not in field.metadata:
                self._field(field, kind.__flexible__)
        if kind.__flexible__:
            self._length(0, "uvarint", "tags")

    def _field(self, field: Any, flexible: bool) -> None:
        annotation, nullable = _without_none(field.type)
        if get_origin(annotation) is tuple:
            self._array(field, get_args(annotation)[0], flexible)
        elif dataclasses.is_dataclass(annotation):
            if nullable:
                self.data += b"\x01"
            self._structure(annotation)
        else:
            self._value(field.name, field.metadata["kafka_type"], flexible)

    def _array(self, field: Any, item: Any, flexible: bool) -> None:
        count = self._items
        self._length(count + 1 if flexible else count, "uvarint" if flexible else "int32", "array")
        length, start = self.lengths[-1], len(self.data)
        for _ in range(count):
            if dataclasses.is_dataclass(item):
                self._structure(item)
            else:
                self._value(field.name, field.metadata["kafka_type"], flexible)
        self.arrays.append(Array(length, start, len(self.data)))

    def _value(self, name: str, kind: str, flexible: bool) -> None:
        if kind in _FORMATS:
            self.data += struct.pack(_FORMATS[kind], self._number(name, kind))
        elif kind == "float64":
            self.data += struct.pack(">d", 1.5)
        elif kind == "bool":
            self.data.append(self._choose.randrange(2))
        elif kind == "uuid":
            self.data += bytes(16)
        else:
            text = self._bytes(name) if kind in ("bytes", "records") else self._text(name).encode()
            small = "int32" if kind in ("bytes", "records") else "int16"
            self._length(len(text) + 1 if flexible else len(text), "uvarint" if flexible else small, "text")
            self.data += text

    def _number(self, name: str, kind: str) -> int:
        if name == "acks":
            return -1  # without acknowledgement there is no answer to wait for
        if "timedelta" in kind or name.endswith("timeout"):
            return self._choose.choice([0, 10, 6000 if "session" in name else 20])
        if name in ("partition", "partition_index", "index", "num_partitions", "count"):
            return 0
        if name.endswith("bytes"):
            return self._choose.choice([0, 1, 1 << 20])
        return self._choose.choice([0, 0, 1, 1, -1, 2]) if not kind.startswith("uint") else 1

    def _text(self, name: str) -> str:
        if "group" in name and "instance" not in name:
            return self._choose.choice(GROUPS)
        if "topic" in name or (name in ("name", "resource_name") and "group" not in self._api):
            return self._choose.choice(TOPICS.get(self._api, ["fuzz", "missing", ""]))
        return self._choose.choice(TEXTS)

    def _bytes(self, name: str) -> bytes:
        return BATCH if name == "records" else self._choose.choice([b"", b"\x00\x01", bytes(40)])


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """The type itself, and whether None may stand for it."""
    parts = [part for part in get_args(annotation) if part is not NoneType]
    optional = NoneType in get_args(annotation)
    return (parts[0], True) if optional else (annotation, False)
