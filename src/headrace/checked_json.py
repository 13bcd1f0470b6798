"""JSON with a checksum over every byte before it, for small files of named fields.

A file is JSON, for people and their tools, and its last member is the checksum:

```text
{
 "name": "orders",
 ...
 "crc32c": "1b2e90d4"
}
```

Files of the earlier format are the same without it. They are taken if they hold the
fields that were written then and no others, so that a damaged checksum never passes
for none; `decode_fields` says which it was, so that its owner writes the file anew.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from crc32c import crc32c

__all__ = ["Found", "decode_fields", "encode_fields"]

_MEMBER = ' "crc32c": "{:08x}"\n}}\n'
_AT_END = re.compile(rb' "crc32c": "([0-9a-f]{8})"\n}\n\Z')


class Found(NamedTuple):
    """What a file holds; `is_checked` is false for one of the earlier format."""

    fields: dict[str, Any]
    is_checked: bool


def encode_fields(fields: Mapping[str, object]) -> bytes:
    """The bytes of a file; it has at least one field."""
    body = json.dumps(fields, indent=1).removesuffix("\n}").encode() + b",\n"
    return body + _MEMBER.format(crc32c(body)).encode()


def decode_fields(data: bytes, earlier: Iterable[str] | None) -> Found:
    """What was encoded, or a file of `earlier` fields without a checksum; ValueError says what is wrong.

    None: which fields such a file has is for the caller to judge.
    """
    member = _AT_END.search(data)
    if member is not None and int(member[1], 16) != crc32c(data[: member.start()]):
        raise ValueError("its checksum does not hold")
    try:
        fields = json.loads(data)
    except ValueError:
        raise ValueError("it is not the JSON that was written" if data else "it is empty") from None
    if not isinstance(fields, dict):
        raise ValueError("it is not the JSON that was written")
    if member is not None:
        del fields["crc32c"]
    elif "crc32c" in fields or (earlier is not None and fields.keys() != set(earlier)):
        raise ValueError("it has no checksum, and other fields than such a file has")
    return Found(fields, member is not None)
