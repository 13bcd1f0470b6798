"""A client in a process of its own, as a `Driver`."""

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clients.driver import (
    Driver,
    DriverError,
    GroupDescription,
    Membership,
    MemberState,
    Message,
    Position,
    Record,
    Sent,
    Unsupported,
    record_from,
)
from clients.lines import pack, unpack

ANSWER_TIMEOUT_S = 120


class ClientProcess:
    """One request at a time over JSON lines; what the client logs goes to `log`."""

    def __init__(
        self, command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("ab"),
            env={**os.environ, **(environment or {})},
        )
        self._answers: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def call(self, op: str, **args: Any) -> Any:
        self._process.stdin.write(pack({"op": op, "args": args}))
        self._process.stdin.flush()
        answer = unpack(self._answer(op))
        if "unsupported" in answer:
            raise Unsupported(answer["unsupported"])
        if "error" in answer:
            raise DriverError(answer["error"]["code"], answer["error"]["message"])
        return answer["ok"]

    def _answer(self, op: str) -> bytes:
        try:
            line = self._answers.get(timeout=ANSWER_TIMEOUT_S)
        except queue.Empty:
            self.kill()
            raise AssertionError(f"{op}: no answer within {ANSWER_TIMEOUT_S} s\n{self._tail()}") from None
        if line is None:
            raise AssertionError(f"{op}: the client's process ended ({self._process.wait()})\n{self._tail()}")
        return line

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.stdin.close()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()


class RemoteDriver(Driver):
    """Every call goes to the client's process, and its answer is typed again here."""

    def __init__(self, name: str, process: ClientProcess) -> None:
        self.name = name
        self.process = process

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        max_request_bytes: int = 1 << 20,
    ) -> list[Sent]:
        args = {"topic": topic, "messages": messages, "codec": codec, "max_request_bytes": max_request_bytes}
        return [Sent(**fields) for fields in self.process.call("produce", **args)]

    def read(
        self, topic: str, start: Mapping[int, int], count: int, *, timeout_s: float = 60
    ) -> list[Record]:
        found = self.process.call("read", topic=topic, start=start, count=count, timeout_s=timeout_s)
        return [record_from(fields) for fields in found]

    def offset(self, topic: str, partition: int, at: str | int) -> Position:
        return Position(**self.process.call("offset", topic=topic, partition=partition, at=at))

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        self.process.call("create_topic", topic=topic, partitions=partitions, config=config or {})

    def delete_topic(self, topic: str) -> None:
        self.process.call("delete_topic", topic=topic)

    def topics(self) -> list[str]:
        return self.process.call("topics")

    def partition_count(self, topic: str) -> int:
        return self.process.call("partition_count", topic=topic)

    def config(self, topic: str) -> dict[str, str | None]:
        return self.process.call("config", topic=topic)

    def alter_config(self, topic: str, config: Mapping[str, str]) -> None:
        self.process.call("alter_config", topic=topic, config=config)

    def create_partitions(self, topic: str, total: int) -> None:
        self.process.call("create_partitions", topic=topic, total=total)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        return _by_partition(self.process.call("delete_records", topic=topic, before=before))

    def groups(self) -> list[str]:
        return self.process.call("groups")

    def describe_group(self, group: str) -> GroupDescription:
        found = self.process.call("describe_group", group=group)
        return GroupDescription(**{**found, "assigned": _pairs(found["assigned"])})

    def delete_group(self, group: str) -> None:
        self.process.call("delete_group", group=group)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        return _by_partition(self.process.call("committed", group=group, topic=topic))

    def alter_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        self.process.call("alter_offsets", group=group, topic=topic, offsets=offsets)

    def join(self, membership: Membership) -> int:
        return self.process.call("join", membership=replace(membership, topics=list(membership.topics)))

    def member(self, handle: int) -> MemberState:
        found = self.process.call("member", handle=handle)
        records = tuple(record_from(fields) for fields in found["records"])
        places = {name: _pairs(found[name]) for name in ("assigned", "revoked")}
        return MemberState(**{**found, **places, "records": records})

    def commit(self, handle: int, topic: str, offsets: Mapping[int, int]) -> None:
        self.process.call("commit", handle=handle, topic=topic, offsets=offsets)

    def leave(self, handle: int) -> None:
        self.process.call("leave", handle=handle)

    def die(self) -> None:
        """End the process as a crash would: nobody is told."""
        self.process.kill()

    def close(self) -> None:
        self.process.close()


def _by_partition(found: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in found.items()}


def _pairs(found: Sequence[Sequence[Any]]) -> frozenset[tuple[str, int]]:
    return frozenset((topic, partition) for topic, partition in found)
