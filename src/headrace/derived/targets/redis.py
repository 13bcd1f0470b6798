"""A cache that speaks Redis's protocol.

Every row is one key: the prefix, and what the record's key says. Its value is JSON, or a hash
with the fields of the row. The state is at `headrace:follower:NAME`. Rows and state are written
in one MULTI/EXEC, under WATCH of the state: if another follower has written it meanwhile, nothing
happens.
"""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import orjson

from headrace.crash_points import reached
from headrace.derived.changes import Row
from headrace.derived.pace import EAGER
from headrace.derived.state import FollowState, parse_state
from headrace.derived.target import Refuse, StateLost
from headrace.derived.targets.resp import RedisAddress, RespConnection
from headrace.errors import FencedError, RetriableError

__all__ = ["RedisTarget", "key_text"]

_SCAN = 1_000
_TOGETHER = 500
_MOST_BYTES = 512 << 20  # of a value, which Redis limits


class RedisTarget:
    """The rows under one prefix of one database of a server; clusters are not supported."""

    has_snapshots = False
    pace = EAGER

    def __init__(self, url: str, name: str, *, prefix: str, values: str = "json") -> None:
        self._address = RedisAddress.parse(url)
        self._name = name
        self._prefix = prefix.encode()
        self._as_hash = values == "hash"
        self._state_key = f"headrace:follower:{name}".encode()
        self._opened: RespConnection | None = None

    # --- state --------------------------------------------------------------------------------

    def state(self) -> FollowState | None:
        return _state(self._redis().call("GET", self._state_key))

    def is_empty(self) -> bool:
        return next(self._scan(), None) is None

    def claim(self, state: FollowState) -> None:
        self._redis().call("SET", self._state_key, state.to_json())

    def apply(
        self, upserts: Mapping[bytes, Row], deletes: Collection[bytes], state: FollowState, refuse: Refuse
    ) -> None:
        commands: list[Sequence[Any]] = [("DEL", self.identity(key)) for key in deletes]
        for key, row in upserts.items():
            commands += self._put(key, row, refuse)
        self._transact(commands, state)

    def delete_identities(self, identities: Collection[bytes], state: FollowState) -> None:
        self._transact([("DEL", each) for each in identities], state)

    # --- rows ---------------------------------------------------------------------------------

    def get(self, keys: Collection[bytes]) -> dict[bytes, Row]:
        found = self._read([self.identity(key) for key in keys])
        return {key: found[at] for key in keys if (at := self.identity(key)) in found}

    def identity(self, key: bytes) -> bytes:
        return self._prefix + key_text(key)

    def stored(self, row: Row) -> Row:
        if not self._as_hash:
            return row
        return {name: _field(each).decode() for name, each in row.items() if each is not None}

    def rows(self) -> Iterator[tuple[bytes, Row]]:
        waiting: list[bytes] = []
        seen: set[bytes] = set()  # a scan may return a key more than once
        for key in self._scan():
            if key not in seen:
                seen.add(key)
                waiting.append(key)
            if len(waiting) >= _TOGETHER:
                yield from self._read(waiting).items()
                waiting = []
        yield from self._read(waiting).items()

    @contextlib.contextmanager
    def reading(self) -> Iterator[FollowState | None]:
        yield self.state()

    def read_together(self, identities: Collection[bytes]) -> tuple[FollowState | None, dict[bytes, Row]]:
        wanted = list(identities)
        commands = [("MULTI",), ("GET", self._state_key), *map(self._get, wanted), ("EXEC",)]
        state, *values = self._pipeline(commands)[-1]
        return _state(state), self._rows(wanted, values)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # --- the server ---------------------------------------------------------------------------

    def _redis(self) -> RespConnection:
        if self._opened is None:
            self._opened = RespConnection(self._address)
        return self._opened

    def _pipeline(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        try:
            return self._redis().pipeline(commands)
        except BaseException:
            self.close()  # what is left to be read on it belongs to nobody
            raise

    def _transact(self, commands: Sequence[Sequence[Any]], state: FollowState) -> None:
        """These commands and the state, if this follower still owns the target."""
        self._pipeline([("WATCH", self._state_key)])
        found = _state(self._pipeline([("GET", self._state_key)])[0])
        if found is None or found.owner != state.owner:
            self._pipeline([("UNWATCH",)])
            if found is None:
                raise StateLost(f"{self._address} no longer has the position of {self._name}")
            raise FencedError(f"another process follows into {self._address} as {self._name}")
        reached("rows written")
        written = self._pipeline(
            [("MULTI",), *commands, ("SET", self._state_key, state.to_json()), ("EXEC",)]
        )
        if written[-1] is None:
            raise RetriableError(f"the state of {self._name} was changed meanwhile; it is read again")

    def _put(self, key: bytes, row: Row, refuse: Refuse) -> list[Sequence[Any]]:
        at = self.identity(key)
        if not self._as_hash:
            value = orjson.dumps(row)
            if len(value) > _MOST_BYTES:
                refuse(key, f"the row has {len(value):,} bytes, more than Redis takes")
                return []
            return [("SET", at, value)]
        fields = [part for name, each in row.items() if each is not None for part in (name, _field(each))]
        if not fields:
            refuse(key, "a hash has at least one field, and every field of the row is null")
            return []
        return [("DEL", at), ("HSET", at, *fields)]

    def _get(self, at: bytes) -> Sequence[Any]:
        return ("HGETALL" if self._as_hash else "GET", at)

    def _read(self, identities: Sequence[bytes]) -> dict[bytes, Row]:
        return self._rows(identities, self._pipeline([self._get(each) for each in identities]))

    def _rows(self, identities: Sequence[bytes], values: Sequence[Any]) -> dict[bytes, Row]:
        found = {}
        for at, value in zip(identities, values, strict=True):
            if self._as_hash and value:
                pairs = zip(value[::2], value[1::2], strict=True)
                found[at] = {name.decode(errors="replace"): _shown(each) for name, each in pairs}
            elif value and not self._as_hash:
                found[at] = _row(value)
        return found

    def _scan(self) -> Iterator[bytes]:
        pattern, cursor = _literally(self._prefix) + b"*", b"0"
        while True:
            cursor, keys = self._pipeline([("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN)])[0]
            yield from (key for key in keys if not key.startswith(b"headrace:follower:"))
            if cursor == b"0":
                return


def key_text(key: bytes) -> bytes:
    """What stands behind the prefix: the values of a key that is a JSON object, else the key itself.

    `{"id":7}` is `7`; `{"shop":"a","id":7}` is `a:7`. Different keys of a table never have the same
    text: a text that could be taken for another value stands in quotes, and `:` and `%` within
    values of several are escaped as in a URL.
    """
    try:
        said = orjson.loads(key)
    except ValueError:
        return key
    if not isinstance(said, dict) or not said:
        return key
    texts = [_text(each) for each in said.values()]
    if len(texts) == 1:
        return texts[0]
    return b":".join(each.replace(b"%", b"%25").replace(b":", b"%3A") for each in texts)


def _text(value: Any) -> bytes:
    if not isinstance(value, str):
        return orjson.dumps(value)
    with contextlib.suppress(ValueError):
        orjson.loads(value)
        return orjson.dumps(value)
    return value.encode()


def _field(value: Any) -> bytes:
    """A field of a hash: text as it is, other values as JSON."""
    return value.encode() if isinstance(value, str) else orjson.dumps(value)


def _shown(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


def _row(value: bytes) -> Row:
    """A value that somebody else wrote is no row, and differs from every row."""
    try:
        said = orjson.loads(value)
    except ValueError:
        said = None
    return said if isinstance(said, dict) else {"value": _shown(value)}


def _state(value: bytes | None) -> FollowState | None:
    return None if value is None else parse_state(value)


def _literally(text: bytes) -> bytes:
    """A pattern that matches only this text."""
    return b"".join(b"\\" + bytes([each]) if each in b"*?[]\\^-" else bytes([each]) for each in text)
