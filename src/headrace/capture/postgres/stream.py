"""The replication stream: messages in their order, keepalives answered, positions acknowledged.

It is read ahead, and the server hears from us, also while nobody asks for messages (`ReadAhead`).

Positions (LSN) are 64-bit numbers of bytes in the write-ahead log. Every transaction that ends
before `sent_lsn` was handed over; the server may forget what lies before `acknowledged_lsn`.
"""

import threading
import time

from headrace.capture.postgres.decode import Keepalive, WalData, read_copy_data
from headrace.capture.postgres.wire import Connection, format_lsn, identifier, literal
from headrace.kernels import FoundMessages, RowTables

__all__ = ["ReplicationStream"]

_STATUS_S = 5.0
_STATUSES = 4  # within wal_sender_timeout, after which the server gives up


class ReplicationStream:
    """One running START_REPLICATION."""

    def __init__(
        self, connection: Connection, slot: str, publication: str, start_lsn: int, *, timeout_s: float = 0.0
    ) -> None:
        """`timeout_s` is the server's wal_sender_timeout; 0: it has none."""
        self.slot = slot
        self._status_s = min(_STATUS_S, timeout_s / _STATUSES) if timeout_s else _STATUS_S
        self._connection = connection
        self._received_lsn = start_lsn
        self.acknowledged_lsn = start_lsn
        self.sent_lsn = start_lsn
        self._told_at = time.monotonic()
        self._telling = threading.Lock()
        self._asked_at = 0.0
        self.is_drained = True
        names = literal(identifier(publication)).lstrip()
        connection.start_replication(
            f"START_REPLICATION SLOT {identifier(slot)} LOGICAL {format_lsn(start_lsn)} "
            f"(proto_version '1', publication_names {names})"
        )
        connection.read_ahead(self._keep_alive, self._status_s)

    def next(self, wait_s: float) -> WalData | None:
        """The next message of the plugin; None if none comes within `wait_s`, or a keepalive says so.

        After None, everything before `sent_lsn` was handed over. More may have arrived behind a keepalive,
        which the server sends after every transaction while it waits for our acknowledgement: only then
        `is_drained` is false.
        """
        self.is_drained = True
        until = None
        while True:
            body = self._connection.stream(None)
            if body is None:
                until = time.monotonic() + wait_s if until is None else until
                body = self._connection.stream(max(until - time.monotonic(), 0.0))
                if body is None:
                    return None
            if not body:
                continue
            message = read_copy_data(body)
            if isinstance(message, WalData):
                self._received_lsn = max(self._received_lsn, message.lsn)
                return message
            if self._keepalive(message):
                self.is_drained = False
                return None

    def rows_of(self, tables: RowTables) -> tuple[bytes, FoundMessages]:
        """The messages that have arrived next, as long as they are rows of these tables; it may be none.

        Waits for the next one, so there has to be one: within a transaction.
        """
        self._connection.await_message()
        data, found = self._connection.stream_rows_of(tables)
        self._received_lsn = max(self._received_lsn, found.last_place)
        return data, found

    def _keepalive(self, message: Keepalive) -> bool:
        """Whether it says that there is nothing to come before a position that is news."""
        if message.wants_reply:
            self._tell()
        is_news = message.end_lsn > self.sent_lsn
        self.sent_lsn = max(self.sent_lsn, message.end_lsn)
        return is_news

    def _keep_alive(self) -> None:
        """Lets the server hear from us, if it has not of late; in the thread that reads ahead."""
        if time.monotonic() - self._told_at > self._status_s:
            self._tell()

    def passed(self, lsn: int) -> None:
        """Everything before was handed over, for the transaction that ended there had nothing for us."""
        self.sent_lsn = max(self.sent_lsn, lsn)

    def ask(self, every_s: float) -> None:
        """Asks the server how far it is, not too often: the keepalive that answers moves `sent_lsn`."""
        if time.monotonic() - self._asked_at >= every_s:
            self._asked_at = time.monotonic()
            self._tell(ask=True)

    def acknowledge(self, lsn: int) -> None:
        """What lies before is safe with us; the server may forget it."""
        if lsn > self.acknowledged_lsn:
            self.acknowledged_lsn = lsn
            self._tell()

    def _tell(self, *, ask: bool = False) -> None:
        with self._telling:  # or an older position could be told after a newer one
            received = max(self._received_lsn, self.acknowledged_lsn)
            self._connection.confirm(received, self.acknowledged_lsn, ask=ask)
            self._told_at = time.monotonic()

    def close(self) -> None:
        self._connection.close()
