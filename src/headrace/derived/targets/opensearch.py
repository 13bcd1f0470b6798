"""An index of OpenSearch, or of another server with its bulk API.

There are no transactions here, so rows and position cannot change at once. Instead every write can
be repeated, and one that comes late does nothing:

- The document of the state, in the index `headrace-followers`, names the index and counts its writes. It is
  written only if nobody has written it since it was read.
- Rows carry that count, plus one, as their external version. A process that was overtaken writes
  lower versions than the one that took over, and the server refuses them.
- Before rows are written, the state says up to which positions (`until`); after them, that it is
  there. In between, and after a death in between, it is `building`: rows may be ahead of the position.
"""

import contextlib
import hashlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import orjson

from headrace.crash_points import reached
from headrace.derived.changes import Row
from headrace.derived.pace import EAGER
from headrace.derived.state import FollowState, parse_state
from headrace.derived.target import Refuse, StateLost
from headrace.derived.targets.http import HttpAddress, HttpConnection
from headrace.derived.targets.redis import key_text
from headrace.errors import ConfigError, FencedError, RetriableError

__all__ = ["OpenSearchTarget", "document", "document_id"]

_STATES = "headrace-followers"
_BULK_BYTES = 8 << 20
_PAGE = 1_000
_ID_BYTES = 512
_ROUNDS, _ROUND_S = 20, 0.05
# Deletes are remembered for longer than any request may be under way.
_SETTINGS = {"index": {"gc_deletes": "1h", "mapping": {"ignore_malformed": True}}}
_MAPPINGS = {"date_detection": False}


def document_id(key: bytes) -> str:
    """What a row's document is called: the values of its key, or a hash of one that is no short text."""
    said = key_text(key)
    try:
        text = said.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or len(said) > _ID_BYTES or text.startswith("~") or "\0" in text:
        return f"~{hashlib.blake2b(said, digest_size=20).hexdigest()}"
    return text


def document(row: Row) -> Row:
    """The document of a row: arrays of simple values as they are, other arrays, and objects, as JSON."""
    return {name: _value(each) for name, each in row.items() if each is not None}


def _value(value: Any) -> Any:
    if isinstance(value, dict) or (isinstance(value, list) and not _is_simple(value)):
        return orjson.dumps(value).decode()
    return value


def _is_simple(values: list[Any]) -> bool:
    kinds = {type(each) for each in values}
    return len(kinds) <= 1 and not kinds & {dict, list, type(None)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """The document of a state: which write of it this is, and of which index, by its uuid."""

    state: FollowState
    version: int
    until: Mapping[int, int] = field(default_factory=dict)
    index: str = ""
    at: tuple[int, int] = (0, 0)

    def to_json(self) -> bytes:
        until = {str(each): to for each, to in self.until.items()}
        count = {"version": self.version, "index": self.index}
        said = {"state": self.state.to_json().decode(), "until": until, **count}
        return orjson.dumps(said)


class OpenSearchTarget:
    """The documents of one index, which belongs to one follower; it is created if it is missing."""

    has_snapshots = False
    pace = EAGER

    def __init__(self, url: str, name: str, *, index: str) -> None:
        self._address = HttpAddress.parse(url)
        self._name = name
        self._index = index
        self._state_path = f"/{_STATES}/_doc/{quote(f'{index}:{name}', safe='')}"
        self._opened: HttpConnection | None = None
        self._floor = 0

    # --- state --------------------------------------------------------------------------------

    def state(self) -> FollowState | None:
        found = self._read_state()
        if found is None:
            return None
        ahead = {each: max(to, found.state.building.get(each, 0)) for each, to in found.until.items()}
        return replace(found.state, building={**found.state.building, **ahead})

    def is_empty(self) -> bool:
        return next(self.rows(), None) is None

    def claim(self, state: FollowState) -> None:
        for _ in range(_ROUNDS):
            found, index = self._read_document(), self._index_uuid()
            if found is None:
                now_ms = time.time_ns() // 1_000_000  # above what was counted before the state was lost
                wanted = _Stored(state=state, version=max(self._floor, now_ms), index=index)
            else:
                is_same = found.state.topic_id == state.topic_id and found.index == index
                until = found.until if is_same else {}
                wanted = replace(found, state=state, version=self._next(found), until=until, index=index)
            if self._write_state(wanted, found):
                return
        raise RetriableError(f"{self._address}: others write the state of {self._name} all the time")

    def apply(
        self, upserts: Mapping[bytes, Row], deletes: Collection[bytes], state: FollowState, refuse: Refuse
    ) -> None:
        rows = {document_id(key): (key, row) for key, row in upserts.items()}
        self._write(rows, [document_id(key) for key in deletes], state, refuse)

    def delete_identities(self, identities: Collection[bytes], state: FollowState) -> None:
        self._write({}, [each.decode() for each in identities], state, lambda *_: None)

    # --- rows ---------------------------------------------------------------------------------

    def get(self, keys: Collection[bytes]) -> dict[bytes, Row]:
        found = self._read([document_id(key) for key in keys])
        return {key: found[at] for key in keys if (at := document_id(key)) in found}

    def identity(self, key: bytes) -> bytes:
        return document_id(key).encode()

    def stored(self, row: Row) -> Row:
        return document(row)

    def rows(self) -> Iterator[tuple[bytes, Row]]:
        self._ask("POST", f"/{self._index}/_refresh")
        asked = {"size": _PAGE, "sort": ["_doc"], "query": {"match_all": {}}}
        said = self._ask("POST", f"/{self._index}/_search?scroll=5m", asked)
        while found := said["hits"]["hits"]:
            for each in found:
                yield each["_id"].encode(), each["_source"]
            said = self._ask("POST", "/_search/scroll", {"scroll": "5m", "scroll_id": said["_scroll_id"]})
        self._http().ask("DELETE", "/_search/scroll", orjson.dumps({"scroll_id": said["_scroll_id"]}))

    @contextlib.contextmanager
    def reading(self) -> Iterator[FollowState | None]:
        yield self.state()

    def read_together(self, identities: Collection[bytes]) -> tuple[FollowState | None, dict[bytes, Row]]:
        """While rows are being written, it waits a little for the position that they belong to."""
        wanted = [each.decode() for each in identities]
        for _ in range(_ROUNDS):
            before = self._read_state()
            found = self._read(wanted)
            after = self._read_state()
            if before == after and (after is None or not after.until):
                break
            time.sleep(_ROUND_S)
        return self.state(), {at.encode(): row for at, row in found.items()}

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # --- writing ------------------------------------------------------------------------------

    def _write(
        self,
        rows: Mapping[str, tuple[bytes, Row]],
        deletes: Collection[str],
        state: FollowState,
        refuse: Refuse,
    ) -> None:
        owned = self._owned(state)
        reached("rows written")
        if rows or deletes:
            ahead = {each: max(to, owned.until.get(each, 0)) for each, to in state.positions.items()}
            begun = replace(owned, version=self._next(owned), until={**owned.until, **ahead})
            owned = self._moved(begun, owned, state)
            self._write_rows(rows, deletes, owned, state, refuse)
        reached("ledger written")
        left = {each: to for each, to in owned.until.items() if state.positions.get(each, 0) < to}
        until = owned.until if left else {}
        self._moved(replace(owned, state=state, version=self._next(owned), until=until), owned, state)

    def _write_rows(
        self,
        rows: Mapping[str, tuple[bytes, Row]],
        deletes: Collection[str],
        owned: _Stored,
        state: FollowState,
        refuse: Refuse,
    ) -> None:
        version = {"version": owned.version, "version_type": "external_gte"}
        lines = [orjson.dumps({"delete": {"_id": at, **version}}) + b"\n" for at in deletes]
        for at, (key, row) in rows.items():
            try:
                text = orjson.dumps(document(row))
            except TypeError as error:
                refuse(key, str(error))
                continue
            lines.append(orjson.dumps({"index": {"_id": at, **version}}) + b"\n" + text + b"\n")
        refused: dict[str, str] = {}
        for part in _parts(lines):
            refused |= self._bulk(part, state)
        for at, why in refused.items():
            if at in rows:
                refuse(rows[at][0], why)

    def _bulk(self, part: bytes, state: FollowState) -> dict[str, str]:
        """Writes documents; those that the server refuses, with the reason."""
        said = self._asked("POST", f"/{self._index}/_bulk", part, "x-ndjson")
        refused, conflicts = {}, []
        for item in said["items"]:
            (done,) = item.values()
            status, error = done["status"], done.get("error")
            if error is None:
                continue
            if status == 409:
                conflicts.append(done["_id"])
            elif status == 400:
                refused[done["_id"]] = _reason(error)
            else:
                raise RetriableError(f"{self._address} answers {status}: {_reason(error)}")
        if conflicts:
            self._overtaken(conflicts, state)
        return refused

    def _overtaken(self, conflicts: list[str], state: FollowState) -> None:
        """Documents have newer versions: of another process, or the state was lost and counts anew."""
        self._owned(state)
        docs = orjson.dumps({"ids": conflicts})
        found = self._asked("POST", f"/{self._index}/_mget?_source=false", docs)["docs"]
        self._floor = max([self._floor, *(each.get("_version", 0) for each in found)]) + 1
        raise RetriableError(f"documents of {self._index} have newer versions; they are written again")

    def _moved(self, wanted: _Stored, found: _Stored, state: FollowState) -> _Stored:
        if not self._write_state(wanted, found):
            self._owned(state)
            raise RetriableError(f"the state of {self._name} was changed meanwhile; it is read again")
        return self._owned(state)

    def _next(self, found: _Stored) -> int:
        return max(found.version + 1, self._floor)

    # --- the server ---------------------------------------------------------------------------

    def _http(self) -> HttpConnection:
        if self._opened is None:
            opened = HttpConnection(self._address)
            for index, said in (
                (self._index, {"settings": _SETTINGS, "mappings": _MAPPINGS}),
                (_STATES, {"mappings": {"enabled": False}}),
            ):
                status, answer = opened.ask("PUT", f"/{index}", orjson.dumps(said))
                if status != 200 and "already_exists" not in str(answer):
                    raise ConfigError(f"{self._address}, index {index}: {_reason(answer.get('error'))}")
            self._opened = opened
        return self._opened

    def _asked(self, method: str, path: str, body: bytes = b"", kind: str = "json") -> Any:
        status, said = self._http().ask(method, path, body, kind)
        if status == 404 and "index_not_found" in str(said):
            self.close()
            raise RetriableError(f"{self._address}: an index was removed; it is created again")
        if status >= 500:
            raise RetriableError(f"{self._address} answers {status}: {_reason(said.get('error'))}")
        if status >= 400:
            raise ConfigError(f"{self._address} answers {status}: {_reason(said.get('error'))}")
        return said

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        return self._asked(method, path, b"" if body is None else orjson.dumps(body))

    def _read(self, ids: Sequence[str]) -> dict[str, Row]:
        """Documents as they are now, also those that no search finds yet."""
        found: dict[str, Row] = {}
        for start in range(0, len(ids), _PAGE):
            said = self._ask("POST", f"/{self._index}/_mget", {"ids": list(ids[start : start + _PAGE])})
            found |= {each["_id"]: each["_source"] for each in said["docs"] if each.get("found")}
        return found

    def _read_state(self) -> _Stored | None:
        """What is stored; None if the index is another than it was written for."""
        found = self._read_document()
        return found if found is not None and found.index == self._index_uuid() else None

    def _index_uuid(self) -> str:
        said = self._ask("GET", f"/{self._index}/_settings/index.uuid")
        return str(next(iter(said.values()))["settings"]["index"]["uuid"])

    def _read_document(self) -> _Stored | None:
        status, said = self._http().ask("GET", self._state_path)
        if status == 404:
            return None
        if status != 200:
            raise ConfigError(f"{self._address} answers {status}: {_reason(said.get('error'))}")
        held = said["_source"]
        until = {int(each): int(to) for each, to in held["until"].items()}
        at = (int(said["_seq_no"]), int(said["_primary_term"]))
        state, version = parse_state(held["state"]), int(held["version"])
        return _Stored(state=state, version=version, until=until, index=held["index"], at=at)

    def _write_state(self, wanted: _Stored, found: _Stored | None) -> bool:
        """Whether it was written, because nobody had since `found` was read."""
        if found is None:
            condition = "op_type=create"
        else:
            condition = f"if_seq_no={found.at[0]}&if_primary_term={found.at[1]}"
        status, said = self._http().ask("PUT", f"{self._state_path}?{condition}", wanted.to_json())
        if status not in (200, 201, 409):
            raise RetriableError(f"{self._address} answers {status}: {_reason(said.get('error'))}")
        return status != 409

    def _owned(self, state: FollowState) -> _Stored:
        found = self._read_state()
        if found is None:
            raise StateLost(f"{self._address} no longer has the position of {self._name}")
        if found.state.owner != state.owner:
            raise FencedError(f"another process follows into {self._address} as {self._name}")
        return found


def _parts(lines: Sequence[bytes]) -> Iterator[bytes]:
    part: list[bytes] = []
    size = 0
    for each in lines:
        if part and size + len(each) > _BULK_BYTES:
            yield b"".join(part)
            part, size = [], 0
        part.append(each)
        size += len(each)
    if part:
        yield b"".join(part)


def _reason(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    cause = error.get("caused_by")
    return f"{error.get('reason')}{f' ({_reason(cause)})' if cause else ''}"
