"""What PostgreSQL's `pgoutput` plugin says, protocol version 1, as values.

A transaction arrives once it is committed, whole and in the order of commits: `Begin`, rows,
`Commit`. A `RelationMessage` describes a table before its first row, and again when it has changed.
`read_message` reads one message by itself; `Transactions` also holds them to that order, and
says what a row is of. Whatever does not fit is a CorruptionError.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from headrace.capture.postgres.wire import Body
from headrace.errors import CorruptionError

__all__ = [
    "UNCHANGED",
    "Begin",
    "Commit",
    "Delete",
    "Insert",
    "Keepalive",
    "LogicalMessage",
    "Message",
    "Origin",
    "RelationColumn",
    "RelationMessage",
    "Row",
    "Transactions",
    "Truncate",
    "TypeName",
    "Unchanged",
    "Update",
    "WalData",
    "read_copy_data",
    "read_message",
]

_EPOCH_2000_US = 946_684_800_000_000
_WAL_HEAD, _KEEPALIVE = struct.Struct("!cQQq"), struct.Struct("!cQqB")
_TEXT, _NULL, _UNCHANGED = b"tnu"


class Unchanged(Enum):
    """A large value that an update left as it was, and that the server does not send again."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED
Row = tuple[bytes | Unchanged | None, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """`final_lsn` is where the commit lies; times are in microseconds since 1970."""

    final_lsn: int
    commit_time_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """`end_lsn` is behind the transaction: what to resume from once it is kept."""

    commit_lsn: int
    end_lsn: int
    commit_time_us: int


@dataclass(frozen=True, slots=True)
class Origin:
    commit_lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """`in_identity` says whether it belongs to the replica identity."""

    name: str
    type_oid: int
    type_modifier: int
    in_identity: bool


@dataclass(frozen=True, slots=True)
class RelationMessage:
    """A table; `replica_identity` is d(efault), n(othing), f(ull) or i(ndex)."""

    oid: int
    schema: str
    name: str
    replica_identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class TypeName:
    oid: int
    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class Insert:
    relation_oid: int
    new: Row


@dataclass(frozen=True, slots=True)
class Update:
    """`old` is None if the identity did not change; whole only if `old_is_whole`."""

    relation_oid: int
    old: Row | None
    old_is_whole: bool
    new: Row


@dataclass(frozen=True, slots=True)
class Delete:
    relation_oid: int
    old: Row
    old_is_whole: bool


@dataclass(frozen=True, slots=True)
class Truncate:
    relation_oids: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """What `pg_logical_emit_message` wrote."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


Message = (
    Begin
    | Commit
    | Origin
    | RelationMessage
    | TypeName
    | Insert
    | Update
    | Delete
    | Truncate
    | LogicalMessage
)


@dataclass(frozen=True, slots=True)
class WalData:
    """One message of the plugin; `lsn` is where it lies."""

    lsn: int
    server_end_lsn: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Keepalive:
    """Everything before `end_lsn` was sent; `wants_reply` at once, or the server gives up."""

    end_lsn: int
    wants_reply: bool


def read_copy_data(body: bytes) -> WalData | Keepalive:
    """What a CopyData of a replication stream holds."""
    try:
        if body[:1] == b"w":
            _, lsn, end_lsn, _ = _WAL_HEAD.unpack_from(body)
            return WalData(lsn, end_lsn, body[_WAL_HEAD.size :])
        if body[:1] == b"k":
            _, end_lsn, _, wants_reply = _KEEPALIVE.unpack(body)
            return Keepalive(end_lsn, wants_reply != 0)
    except struct.error:
        raise CorruptionError(f"{len(body)} bytes of the replication stream are no message") from None
    raise CorruptionError(f"a message of unknown kind {body[:1]!r} in the replication stream")


def read_message(payload: bytes) -> Message:
    """Reads one message, to its last byte."""
    read = Body(payload, "a change")
    reader = _READERS.get(read.take(1))
    if reader is None:
        raise read.wrong(f"a message of unknown kind {payload[:1]!r}")
    message = reader(read)
    read.end()
    return message


def _begin(read: Body) -> Begin:
    return Begin(read.unsigned(8), read.signed(8) + _EPOCH_2000_US, read.unsigned(4))


def _commit(read: Body) -> Commit:
    if read.take(1) != b"\0":
        raise read.wrong("a commit with flags that are not known")
    return Commit(read.unsigned(8), read.unsigned(8), read.signed(8) + _EPOCH_2000_US)


def _origin(read: Body) -> Origin:
    return Origin(read.unsigned(8), read.text())


def _relation(read: Body) -> RelationMessage:
    oid, schema, name = read.unsigned(4), read.text(), read.text()
    identity = read.take(1).decode("latin-1")
    columns = tuple(_relation_column(read) for _ in range(read.unsigned(2)))
    # An empty schema stands for pg_catalog.
    return RelationMessage(oid, schema or "pg_catalog", name, identity, columns)


def _relation_column(read: Body) -> RelationColumn:
    in_identity = bool(read.unsigned(1) & 1)
    name = read.text()
    return RelationColumn(name, read.unsigned(4), read.signed(4), in_identity)


def _type(read: Body) -> TypeName:
    return TypeName(read.unsigned(4), read.text(), read.text())


def _insert(read: Body) -> Insert:
    oid = read.unsigned(4)
    _expect(read, b"N")
    return Insert(oid, _row(read))


def _update(read: Body) -> Update:
    oid, kind = read.unsigned(4), read.take(1)
    if kind == b"N":
        return Update(oid, None, False, _row(read))
    if kind not in (b"K", b"O"):
        raise read.wrong(f"an update with a row of unknown kind {kind!r}")
    old = _row(read)
    _expect(read, b"N")
    return Update(oid, old, kind == b"O", _row(read))


def _delete(read: Body) -> Delete:
    oid, kind = read.unsigned(4), read.take(1)
    if kind not in (b"K", b"O"):
        raise read.wrong(f"a delete with a row of unknown kind {kind!r}")
    return Delete(oid, _row(read), kind == b"O")


def _truncate(read: Body) -> Truncate:
    count, options = read.unsigned(4), read.unsigned(1)
    if read.left() != 4 * count:
        raise read.wrong(f"{count} tables are announced in {read.left()} bytes")
    oids = tuple(read.unsigned(4) for _ in range(count))
    return Truncate(oids, bool(options & 1), bool(options & 2))


def _logical_message(read: Body) -> LogicalMessage:
    flags, lsn, prefix = read.unsigned(1), read.unsigned(8), read.text()
    return LogicalMessage(bool(flags & 1), lsn, prefix, read.take(read.signed(4)))


def _expect(read: Body, kind: bytes) -> None:
    found = read.take(1)
    if found != kind:
        raise read.wrong(f"a row of kind {found!r} where {kind!r} was expected")


def _row(read: Body) -> Row:
    """The values of a row; written out, for this is where the time goes."""
    values: list[bytes | Unchanged | None] = []
    count, data, at = read.unsigned(2), read.data, read.at
    end = len(data)
    for _ in range(count):
        kind = data[at] if at < end else -1
        at += 1
        if kind == _TEXT:
            begin = at + 4
            at = begin + int.from_bytes(data[begin - 4 : begin], "big", signed=True)
            if not begin <= at <= end:
                raise read.wrong(f"a value of {at - begin} bytes at {begin}, of {end}")
            values.append(data[begin:at])
        elif kind == _NULL:
            values.append(None)
        elif kind == _UNCHANGED:
            values.append(UNCHANGED)
        else:
            raise read.wrong("a value of unknown kind")
    read.at = at
    return tuple(values)


_READERS: Mapping[bytes, Callable[[Body], Message]] = {
    b"B": _begin,
    b"C": _commit,
    b"O": _origin,
    b"R": _relation,
    b"Y": _type,
    b"I": _insert,
    b"U": _update,
    b"D": _delete,
    b"T": _truncate,
    b"M": _logical_message,
}


class Transactions:
    """Reads messages in their order: rows within a transaction, of tables that were described.

    `relations` are the tables as last described; `open` is the transaction that is being read.
    """

    def __init__(self) -> None:
        self.relations: dict[int, RelationMessage] = {}
        self.open: Begin | None = None

    def read(self, payload: bytes) -> Message:
        """Raises CorruptionError for a message that cannot be read, or that does not belong here."""
        message = read_message(payload)
        if isinstance(message, Insert):
            self._check(message.relation_oid, message.new)
            return message
        match message:
            case Begin():
                if self.open:
                    raise _out_of_order("a transaction begins within another")
                self.open = message
            case Commit():
                if self.open is None or message.commit_lsn != self.open.final_lsn:
                    raise _out_of_order("a transaction ends that has not begun")
                self.open = None
            case RelationMessage():
                self.relations[message.oid] = message
            case Update():
                self._check(message.relation_oid, message.new)
                self._check(message.relation_oid, message.new if message.old is None else message.old)
            case Delete():
                self._check(message.relation_oid, message.old)
            case Truncate():
                for oid in message.relation_oids:
                    self._check(oid, None)
        return message

    def _check(self, oid: int, row: Row | None) -> None:
        if self.open is None:
            raise _out_of_order("a row stands outside of a transaction")
        relation = self.relations.get(oid)
        if relation is None:
            raise _out_of_order(f"a row is of table {oid}, which was not described")
        if row is not None and len(row) != len(relation.columns):
            raise _out_of_order(
                f"a row of {relation.schema}.{relation.name} has {len(row)} columns, "
                f"not {len(relation.columns)}"
            )


def _out_of_order(reason: str) -> CorruptionError:
    return CorruptionError(f"the changes of PostgreSQL do not fit together: {reason}")
