"""Whether a capture can continue where it stopped: decided from what the server says. Pure.

The server itself moves a start that lies before what its slot has confirmed silently forward,
and any slot of the right name looks right. So everything is compared with what was noted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.capture.postgres.decode import Begin
from headrace.capture.postgres.setup import Slot
from headrace.capture.postgres.wire import format_lsn, parse_lsn
from headrace.errors import ConfigError, RetriableError

__all__ = ["Overlap", "Server", "find_usable", "why_not_resumed"]

_HISTORY_FIELDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server: its cluster, its timeline with the history of that, and where its log ends."""

    system: str
    timeline: int
    end_lsn: int
    history: str = ""

    def parted_from(self, timeline: int) -> int | None:
        """Where its own history left an earlier timeline; None if that is not in it."""
        for line in self.history.splitlines():
            fields = line.split()
            if len(fields) >= _HISTORY_FIELDS and fields[0] == str(timeline):
                return parse_lsn(fields[1])
        return None


class Overlap:
    """What the stream has before the position of `until`, which shows whether this is the log that was read.

    A database may be put back to an earlier state and then write its log beyond where reading stopped:
    with the same cluster, the same timeline, and the slot as it was then. So reading begins a little
    earlier, at the last transaction that was read, or at what the slot has confirmed if that is later:
    there has to be that transaction and nothing else, or nothing at all.
    """

    def __init__(self, position: Mapping[str, Any], confirmed_lsn: int) -> None:
        self.until = int(position["lsn"])
        said = position.get("last")  # id, place and time of a commit
        self._last = tuple(int(each) for each in said) if said else None
        self._is_awaited = self._last is not None and confirmed_lsn <= self._last[1]
        if self._is_awaited and self._last is not None:
            self.start_lsn = self._last[1]
        else:
            self.start_lsn = confirmed_lsn if "last" in position else self.until

    def is_repeated(self, begin: Begin) -> bool:
        """Whether this is the transaction that was read last."""
        if (begin.xid, begin.final_lsn, begin.commit_time_us) != self._last:
            return False
        self._is_awaited = False
        return True

    def why_other(self, reached_lsn: int) -> str:
        """Why the log is not the one that was read, as far as is known at this place; nothing if it may be.

        At a transaction with changes that was not read, or where there is none.
        """
        if reached_lsn < self.until or self._is_awaited:
            return (
                f"its log before {format_lsn(self.until)} is not the one that was read: the server was put "
                "back to an earlier state, and has written since"
            )
        return ""


def find_usable(slot: Slot | None, name: str, database: str) -> Slot | None:
    """The slot, if it is of the right kind and nobody reads from it."""
    if slot is None:
        return None
    if (slot.plugin, slot.database) != ("pgoutput", database):
        raise ConfigError(
            f"slot {name} is of {slot.plugin or 'physical replication'} in database "
            f"{slot.database or 'none'}; give the capture another name, or drop that slot"
        )
    if slot.is_active:
        raise RetriableError(f"slot {name} is in use by another connection")
    return slot


def why_not_resumed(position: Mapping[str, Any], server: Server, slot: Slot | None) -> str:
    """Why changes may be missing behind this position; nothing if none are."""
    lsn = int(position["lsn"])
    if position["system"] != server.system:
        return f"this is another database cluster ({server.system}, not {position['system']})"
    if slot is None:
        return "the replication slot is gone, and with it the changes that it kept"
    if slot.is_lost:
        return (
            "the replication slot was behind by more than max_slot_wal_keep_size, and the server has "
            "removed the log that it still needed"
        )
    if _went_back(position, server):
        return f"the server went back to a state before {format_lsn(lsn)}, where reading stopped"
    if slot.confirmed_lsn > lsn:
        return (
            f"the replication slot is at {format_lsn(slot.confirmed_lsn)}, beyond {format_lsn(lsn)}, where "
            "reading stopped: somebody else has read from it, or it was created again"
        )
    return ""


def _went_back(position: Mapping[str, Any], server: Server) -> bool:
    """After a restore or a failover: what was read has to be in this server's history, too."""
    lsn, timeline = int(position["lsn"]), int(position["timeline"])
    if lsn > server.end_lsn or timeline > server.timeline:
        return True
    if timeline == server.timeline:
        return False
    parted = server.parted_from(timeline)
    return parted is None or lsn > parted
