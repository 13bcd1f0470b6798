"""The stream of the binary log: events in their order, and how far they came.

The server is asked for heartbeats, so that a connection that is dead is noticed, and so that the
end of the log is known when nothing is written. Positions in a file are told in 32 bits; larger
ones are counted here.
"""

import time

from headrace.capture.mysql.chunks import Place, place_of
from headrace.capture.mysql.decode import BinlogEvent, EventReader, EventType, GtidSet, read_rotate
from headrace.capture.mysql.wire import Connection, binlog_dump, literal
from headrace.errors import RetriableError

__all__ = ["BinlogStream", "file_created"]

_HEARTBEAT_S = 0.5
_SILENCE_S = 60.0
_BUSY_S = 3600  # for which the server waits for a reader who has to write a large transaction first
_WRAP = 1 << 32
_HEARTBEATS = (EventType.HEARTBEAT, EventType.HEARTBEAT_2)


class BinlogStream:
    """One running dump of the binary log, from behind the transactions `gtid` on."""

    def __init__(self, connection: Connection, server_id: int, gtid: str) -> None:
        self._connection = connection
        self.file, self.position, self.created = "", 0, 0
        self._reader = _prepared(connection)
        if connection.is_mariadb:
            connection.query(f"SET @slave_connect_state = {literal(gtid)}")
            connection.query("SET @slave_gtid_strict_mode = 0, @slave_gtid_ignore_duplicates = 0")
            connection.start_stream(binlog_dump("", 4, server_id))
        else:
            gtids = GtidSet.parse(gtid).encode()
            connection.start_stream(binlog_dump("", 4, server_id, gtids=gtids))
        self._heard_at = time.monotonic()
        while not self.file:
            self.next(_SILENCE_S)

    @property
    def place(self) -> Place:
        """Everything before was handed over."""
        return place_of(self.file, self.position)

    def next(self, wait_s: float) -> BinlogEvent | None:
        """The next event of a transaction; None if none comes within `wait_s`, or a heartbeat says so."""
        data = self._connection.stream(wait_s)
        now = time.monotonic()
        if data is None:
            if now - self._heard_at > _SILENCE_S:
                raise RetriableError(f"{self._connection.address} has been silent for {_SILENCE_S:.0f} s")
            return None
        self._heard_at = now
        event = self._reader.read(data)
        if event.type == EventType.ROTATE:
            rotate = read_rotate(event.body)
            if rotate.file != self.file:
                self.created = 0
            self.file, self.position = rotate.file, rotate.position
            return None
        if event.type == EventType.FORMAT_DESCRIPTION:
            self.created = event.timestamp
        self._move(event.log_pos)
        return None if event.type in _HEARTBEATS else event

    def _move(self, log_pos: int) -> None:
        if not log_pos:
            return
        position = self.position - self.position % _WRAP + log_pos
        if position < self.position and self.position - position > _WRAP // 2:
            position += _WRAP
        self.position = max(position, self.position)

    def close(self) -> None:
        self._connection.close()


def file_created(connection: Connection, file: str, server_id: int) -> int:
    """When a file of the binary log was begun, in seconds since 1970; the connection is of no use then.

    Tells a file from one of the same name on another server, or after the log was reset.
    """
    reader = _prepared(connection)
    connection.start_stream(binlog_dump(file, 4, server_id))
    while True:
        data = connection.stream(_SILENCE_S)
        if data is None:
            raise RetriableError(f"{connection.address} does not send its binary log")
        event = reader.read(data)
        if event.type == EventType.FORMAT_DESCRIPTION:
            return event.timestamp


def _prepared(connection: Connection) -> EventReader:
    """Makes a session one that the binary log may be sent to."""
    checksum = connection.variable("binlog_checksum")
    period = int(_HEARTBEAT_S * 1_000_000_000)
    for side in ("master", "source"):
        connection.query(f"SET @{side}_binlog_checksum = @@global.binlog_checksum")
        connection.query(f"SET @{side}_heartbeat_period = {period}")
    connection.query(f"SET net_write_timeout = {_BUSY_S}")
    if connection.is_mariadb:
        connection.query("SET @mariadb_slave_capability = 4")
    return EventReader(has_checksums=checksum == "CRC32")
