"""Whether a capture can go on where it stopped: decided from what the server says. Pure.

Any server has a binary log that looks right. So everything is compared with what was noted: the
server, its transactions, and when the file was begun in which reading stopped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.capture.mysql.decode import GtidSet

__all__ = ["Server", "is_same_server", "why_not_resumed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server: its identity, the files of its log with their sizes, and, of MySQL, its transactions.

    `created` is when the file was begun in which reading stopped; None if it is not there.
    """

    product: str
    id: str
    files: Mapping[str, int]
    created: int | None = None
    executed: str = ""
    purged: str = ""


def is_same_server(position: Mapping[str, Any], server: Server) -> bool:
    return bool(position["server"] == server.id and position["product"] == server.product)


def why_not_resumed(position: Mapping[str, Any], server: Server) -> str:
    """Why changes may be missing behind this position; nothing if none are.

    MariaDB itself refuses to go on behind a transaction that it does not have.
    """
    if position["product"] != server.product:
        return f"this is {server.product}, and reading stopped on {position['product']}"
    if is_same_server(position, server):
        reason = _went_back(position, server)
        if reason:
            return reason
    return _transactions_missing(position, server) if server.product == "MySQL" else ""


def _went_back(position: Mapping[str, Any], server: Server) -> str:
    file, pos = str(position["file"]), int(position["pos"])
    if file not in server.files:
        return ""  # removed, which is fine if everything in it was read
    if server.created is not None and position["created"] and server.created != position["created"]:
        return f"the binary log {file} is another one than the one in which reading stopped"
    if pos > server.files[file]:
        return f"the server went back to a state before {file}:{pos}, where reading stopped"
    return ""


def _transactions_missing(position: Mapping[str, Any], server: Server) -> str:
    read = GtidSet.parse(str(position["gtid"]))
    if not GtidSet.parse(server.executed).contains(read):
        return "the server lacks transactions that were read: it is another one, or went back to a backup"
    if not read.contains(GtidSet.parse(server.purged)):
        return "the server has removed binary logs that were not read yet (binlog_expire_logs_seconds)"
    return ""
