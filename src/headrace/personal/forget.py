"""Forgetting a subject: its key is destroyed, values in the clear are removed, and a receipt says so.

Theory of operation. Before anything else happens, the subject is entered in the store's table
`forgetting`, with the number of the next step; each step may be repeated. So after a crash between any
two, the process that opens the store next completes them (`pending`).

1. the keys are deleted, in one transaction with the note that informs other processes;
2. the store's file is written again without what was deleted;
3. what the log has in the clear is removed (by `clear`, from the caller, because only it knows the log);
4. the receipt is written, and the entry is deleted.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from headrace.crash_points import reached
from headrace.errors import RequestError
from headrace.personal.keys import KeyStore
from headrace.personal.receipts import Receipt, sign_receipt

__all__ = ["FORGET_POINTS", "Clear", "Cleared", "Forgetting", "forget", "pending", "resume"]

FORGET_POINTS = ("forgetting begun", "keys destroyed", "store tidied", "log cleared", "receipt written")


@dataclass(frozen=True, slots=True)
class Cleared:
    """What was done about records in the clear, and which of them are left."""

    steps: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


Clear = Callable[[str], Cleared]


@dataclass(frozen=True, slots=True)
class Forgetting:
    """A subject that is being forgotten, as the store has it."""

    name: bytes
    step: int
    subject: str
    at_ms: int
    keys: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    def details(self) -> bytes:
        fields = ("subject", "at_ms", "keys", "steps", "left")
        return orjson.dumps({each: getattr(self, each) for each in fields})

    @classmethod
    def from_row(cls, store: KeyStore, name: bytes, step: int, details: bytes) -> "Forgetting":
        found = orjson.loads(store.unwrap(details, b"forgetting" + name))
        lists = {each: tuple(found[each]) for each in ("keys", "steps", "left")}
        return cls(name, step, found["subject"], found["at_ms"], **lists)


def forget(store: KeyStore, subject: str, *, at_ms: int, clear: Clear) -> Path:
    """Forgets a subject; the path of its receipt. Raises RequestError if nothing is known of it."""
    name = store.subject_name(subject)
    begun = {each.name: each for each in pending(store)}
    if name not in begun:
        if not store.has_key(subject):
            raise RequestError(
                f"{store.path} has no key for subject {subject!r}: nothing was sealed for it, or it was "
                f"forgotten before (receipts are in {receipts_folder(store)})"
            )
        begun[name] = Forgetting(name, 0, subject, at_ms)
        _save(store, begun[name])
        reached("forgetting begun")
    return _finish(store, begun[name], clear)


def pending(store: KeyStore) -> list[Forgetting]:
    """What was begun and not finished."""
    with store.transaction() as database:
        rows = database.execute("SELECT subject, step, details FROM forgetting").fetchall()
    return [Forgetting.from_row(store, *row) for row in rows]


def resume(store: KeyStore, clear: Clear) -> list[Path]:
    """Finishes what a crash interrupted; the paths of the receipts."""
    return [_finish(store, each, clear) for each in pending(store)]


def receipts_folder(store: KeyStore) -> Path:
    """Where receipts are written."""
    return store.path.parent / "receipts"


def _finish(store: KeyStore, task: Forgetting, clear: Clear) -> Path:
    if task.step < 1:
        task = _destroy(store, task)
        reached("keys destroyed")
    if task.step < 2:
        store.tidy()
        task = _next(store, task, ["the key file was written again without them"])
        reached("store tidied")
    if task.step < 3:
        cleared = clear(task.subject)
        task = _next(store, task, cleared.steps, cleared.left)
        reached("log cleared")
    path = _write_receipt(store, task)
    reached("receipt written")
    with store.transaction() as database:
        database.execute("DELETE FROM forgetting WHERE subject = ?", (task.name,))
    return path


def _destroy(store: KeyStore, task: Forgetting) -> Forgetting:
    with store.transaction() as database:
        gone = store.destroy(database, task.name, task.at_ms)
        done = (
            f"{len(gone)} key{'s' if len(gone) != 1 else ''} destroyed: what was sealed with them cannot be "
            "read any more, wherever it is (log, snapshots, answers, state, checkpoints, views, copies)"
        )
        after = Forgetting(
            task.name, 1, task.subject, task.at_ms, tuple(each.hex() for each in gone), (done,)
        )
        _write(store, database, after)
    return after


def _next(store: KeyStore, task: Forgetting, steps: Iterable[str], left: Iterable[str] = ()) -> Forgetting:
    after = Forgetting(
        task.name,
        task.step + 1,
        task.subject,
        task.at_ms,
        task.keys,
        (*task.steps, *steps),
        (*task.left, *left),
    )
    _save(store, after)
    return after


def _save(store: KeyStore, task: Forgetting) -> None:
    with store.transaction() as database:
        _write(store, database, task)


def _write(store: KeyStore, database: Any, task: Forgetting) -> None:
    details = store.wrap(task.details(), b"forgetting" + task.name)
    database.execute("INSERT OR REPLACE INTO forgetting VALUES (?, ?, ?)", (task.name, task.step, details))


def _write_receipt(store: KeyStore, task: Forgetting) -> Path:
    at = datetime.fromtimestamp(task.at_ms / 1000, UTC)
    receipt = Receipt(
        subject=task.subject,
        forgotten_at=at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        keys=task.keys,
        store=str(store.path),
        steps=task.steps,
        left=task.left,
    )
    folder = receipts_folder(store)
    folder.mkdir(exist_ok=True)
    path = folder / f"{at:%Y%m%dT%H%M%S}-{task.name.hex()[:12]}.json"
    data = orjson.dumps(sign_receipt(receipt, store.signing), option=orjson.OPT_INDENT_2)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.write(data + b"\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    return path
