"""Where the embedded log of a data folder listens: a file beside it, which stays when the log ends."""

import re
import socket
from pathlib import Path

from headrace.app.status.lock import is_running
from headrace.checked_json import decode_fields
from headrace.errors import ConfigError
from headrace.json_files import write_json

__all__ = ["keep_address", "last_address", "running_address"]

# As earlier versions wrote it: without a checksum, on the loopback of this machine or where --log said.
_BARE = re.compile(rb"[\w.:\[\]-]+:\d{1,5}\n?")


def running_address(data: Path) -> str | None:
    """Where the embedded log of this folder listens, if it is running.

    Its address is kept when it ends, and another process may listen there by now: the lock of
    the run that the folder belongs to decides.
    """
    if not is_running(data.parent):
        return None
    address = last_address(data)
    if address is None:
        return None
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=2):
            return address
    except (OSError, ValueError):
        return None


def keep_address(data: Path, address: str) -> None:
    """Notes where the log of this folder listens."""
    write_json(_file(data), {"address": address}, durable=False)


def last_address(data: Path) -> str | None:
    """Where it listened when it last ran; raises ConfigError if the file is damaged."""
    path = _file(data)
    try:
        kept = path.read_bytes()
        if _BARE.fullmatch(kept):
            return kept.decode().strip()
        return str(decode_fields(kept, ()).fields["address"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        raise ConfigError(
            f"{path} is damaged ({error}); remove it: the log then takes a free port, or the one that "
            "--log HOST:PORT names"
        ) from None


def _file(data: Path) -> Path:
    return data.with_name("log.address")
