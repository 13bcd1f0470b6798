"""JSON lines between pytest and a client's process; bytes travel as {"b64": …}."""

from base64 import b64decode, b64encode
from typing import Any

import orjson


def pack(value: object) -> bytes:
    return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS) + b"\n"


def unpack(line: bytes) -> Any:
    return _bytes_back(orjson.loads(line))


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return {"b64": b64encode(value).decode("ascii")}
    if isinstance(value, (frozenset, set)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot travel to a client's process")


def _bytes_back(value: Any) -> Any:
    if isinstance(value, list):
        return [_bytes_back(item) for item in value]
    if isinstance(value, dict):
        if value.keys() == {"b64"}:
            return b64decode(value["b64"])
        return {name: _bytes_back(item) for name, item in value.items()}
    return value
