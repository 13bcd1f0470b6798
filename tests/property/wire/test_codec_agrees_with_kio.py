"""Our codec against kio's own: two independent readings of the same schemas."""

import dataclasses
import io
import random
import uuid
from typing import Any, get_args, get_origin

import pytest
from kio.serial import entity_reader, entity_writer
from tools.generate_schemas import TARGET, entity, generate, without_none

from headrace.wire import decoder, encoder, name_of, versions_of
from headrace.wire.schemas import MESSAGES
from headrace.wire.values import Cursor, Frame

SEED = 20261115
SIZES = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}

CASES = [
    pytest.param(api, version, kind, id=f"{name_of(api)}-v{version}-{kind}")
    for api in MESSAGES
    for version in range(versions_of(api).lowest, versions_of(api).highest + 1)
    for kind in ("request", "response")
]


def test_the_table_of_schemas_is_the_generated_one():
    assert TARGET.read_text() == generate(), "run tools/generate_schemas.py"


@pytest.mark.parametrize(("api", "version", "kind"), CASES)
def test_what_we_write_is_what_kio_reads_and_writes_again(api: int, version: int, kind: str) -> None:
    schema = entity(api, version, kind)
    draw = random.Random(f"{SEED}-{api}-{version}-{kind}")
    for _ in range(5):
        fields = _fields(schema, draw)
        ours = Frame()
        encoder(api, version, kind)(ours, fields)
        theirs, size = entity_reader(schema)(bytes(ours), 0)
        again = io.BytesIO()
        entity_writer(schema)(again, theirs)
        assert size == len(ours)
        assert again.getvalue() == bytes(ours)


@pytest.mark.parametrize(("api", "version", "kind"), CASES)
def test_what_we_write_is_what_we_read(api: int, version: int, kind: str) -> None:
    schema = entity(api, version, kind)
    draw = random.Random(f"{SEED}-{api}-{version}-{kind}-own")
    for _ in range(5):
        fields = _fields(schema, draw)
        frame = Frame()
        encoder(api, version, kind)(frame, fields)
        cursor = Cursor(frame)
        _assert_same(fields, decoder(api, version, kind)(cursor))
        assert cursor.position == len(frame)


def _assert_same(expected: Any, found: Any) -> None:
    if isinstance(expected, dict):
        for name, value in expected.items():
            _assert_same(value, getattr(found, name))
    elif isinstance(expected, list):
        assert len(expected) == len(found)
        for one, other in zip(expected, found, strict=True):
            _assert_same(one, other)
    elif isinstance(expected, bytes):
        assert bytes(found) == expected
    else:
        assert found == expected


def _fields(entity: Any, draw: random.Random) -> dict[str, Any]:
    return {field.name: _value(field, draw) for field in dataclasses.fields(entity)}


def _value(field: Any, draw: random.Random) -> Any:
    annotation, nullable = without_none(field.type)
    kind = field.metadata.get("kafka_type")
    if (
        nullable
        and "tag" not in field.metadata
        and kind not in ("uuid", "datetime_i64")
        and draw.random() < 0.2
    ):
        return None
    if get_origin(annotation) is tuple:
        item, _ = without_none(get_args(annotation)[0])
        return [_one(item, kind, draw) for _ in range(draw.randrange(4))]
    return _one(annotation, kind, draw)


def _one(annotation: Any, kind: str | None, draw: random.Random) -> Any:
    if dataclasses.is_dataclass(annotation):
        return _fields(annotation, draw)
    if kind == "string":
        return "".join(draw.choice("aé∂x_-.0") for _ in range(draw.randrange(1, 20)))
    if kind in ("bytes", "records"):
        return draw.randbytes(draw.randrange(1, 300))
    if kind == "uuid":
        return uuid.UUID(int=draw.getrandbits(128), version=4)
    if kind == "bool":
        return draw.random() < 0.5
    if kind == "error_code":
        return draw.choice([0, 1, 3, 25, 36])
    if kind in ("timedelta_i32", "timedelta_i64", "datetime_i64"):
        return draw.randrange(1, 2**31 - 1)
    if kind == "float64":
        return draw.random()
    if kind in ("uint16", "uint32", "uint64"):
        return draw.randrange(2 ** int(kind[4:]))
    assert kind is not None
    bits = SIZES[kind]
    return draw.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))
