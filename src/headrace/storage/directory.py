"""Everything under one data directory: topics, their partitions, and what must outlive them."""

import contextlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID, uuid4

from headrace.errors import ConfigError, CorruptionError, DiskError, RequestError
from headrace.storage.disk import Disk, is_full
from headrace.storage.files import Files
from headrace.storage.log import PartitionLog
from headrace.storage.memory_log import open_log
from headrace.storage.topic_config import TopicConfig

__all__ = ["FORMAT_VERSION", "DataDirectory", "Topic", "check_topic_name"]

FORMAT_VERSION = 1
_UNKNOWN_TOPIC_OR_PARTITION = 3
_INVALID_TOPIC = 17
_TOPIC_EXISTS = 36
_INVALID_PARTITIONS = 37
_INVALID_CONFIG = 40
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MAX_PARTITIONS = 10_000


@dataclass(slots=True)
class Topic:
    """A topic and its open partitions; `overrides` are what was configured, `config` what holds."""

    name: str
    id: UUID
    path: Path
    overrides: dict[str, str]
    config: TopicConfig
    partitions: list[PartitionLog] = field(default_factory=list)


class DataDirectory:
    """Opens every partition under `path`, and owns it: a second process is refused.

    Creating and deleting topics is all or nothing, also across a crash. Methods
    that change topics wait for the disk; they may run on any thread, one at a
    time. `topics` and `topics_by_id` are replaced whole, so readers need no lock.
    """

    def __init__(
        self,
        path: Path,
        *,
        disk: Disk | None = None,
        open_files: int = 512,
        index_cache_bytes: int = 33_554_432,
        on_sync: Callable[[float], None] | None = None,
    ) -> None:
        self.path = path
        self._disk = disk if disk is not None else Disk()
        self._files = Files(
            self._disk, limit=open_files, index_cache_bytes=index_cache_bytes, on_sync=on_sync
        )
        self._lock = threading.Lock()
        self._disk.mkdir(path / "topics")
        self._lock_fd = self._take_lock()
        try:
            self.cluster_id = self._open_format()
            self._disk.sync_directory(path)  # what a killed process left is seen but may not be durable
            self._disk.sync_directory(path / "topics")
            self._next_producer_id = self._read_producer_ids()
            self._publish({topic.name: topic for topic in self._open_topics()})
        except BaseException:
            self._disk.close(self._lock_fd)
            raise

    # -- opening

    def _take_lock(self) -> int:
        path = self.path / "lock"
        try:
            fd = self._disk.lock(path)
        except BlockingIOError:
            holder = self._disk.read_file(path).decode(errors="replace").strip() or "unknown"
            raise ConfigError(
                f"{self.path} is in use by process {holder}; stop it, or use another --data directory"
            ) from None
        self._disk.truncate(fd, 0)
        self._disk.pwritev(fd, [f"{os.getpid()}\n".encode()], 0)
        return fd

    def _open_format(self) -> str:
        """The cluster id; writes the format file of a new directory."""
        path = self.path / "headrace.json"
        if not self._disk.exists(path):
            if any(not name.startswith(".") for name in self._disk.list(self.path / "topics")):
                raise ConfigError(f"{path} is missing although there are topics; restore it from a copy")
            cluster_id = str(uuid4())
            self._disk.replace_file(path, _json({"format_version": FORMAT_VERSION, "cluster_id": cluster_id}))
            self._disk.sync_directory(self.path.parent)
        found = _parse_json(path, self._disk.read_file(path))
        version = found.get("format_version")
        if version != FORMAT_VERSION:
            raise ConfigError(
                f"{self.path} has format version {version}, this Headrace reads {FORMAT_VERSION}; "
                "install the version that wrote it, or a newer one"
            )
        return str(found["cluster_id"])

    def _open_topics(self) -> list[Topic]:
        root, topics = self.path / "topics", []
        for name in sorted(self._disk.list(root)):
            if name.startswith("."):  # a creation or deletion that a crash interrupted
                self._disk.remove_tree(root / name)
            else:
                topics.append(self._open_topic(root / name))
        return topics

    def _open_topic(self, path: Path) -> Topic:
        found = _parse_json(path / "topic.json", self._disk.read_file(path / "topic.json"))
        overrides = {str(key): str(value) for key, value in found["overrides"].items()}
        topic = Topic(found["name"], UUID(path.name), path, overrides, TopicConfig.from_overrides(overrides))
        for number in range(found["partitions"]):
            topic.partitions.append(open_log(path / str(number), topic.config, files=self._files))
        return topic

    # -- what is there

    @property
    def topics(self) -> Mapping[str, Topic]:
        return self._topics

    @property
    def topics_by_id(self) -> Mapping[UUID, Topic]:
        return self._topics_by_id

    def _publish(self, topics: dict[str, Topic]) -> None:
        self._topics_by_id = MappingProxyType({topic.id: topic for topic in topics.values()})
        self._topics = MappingProxyType(topics)

    def _topic(self, name: str) -> Topic:
        try:
            return self._topics[name]
        except KeyError:
            raise RequestError(
                f"no topic {name!r}; create it first", code=_UNKNOWN_TOPIC_OR_PARTITION
            ) from None

    # -- changing topics

    def create_topic(self, name: str, partitions: int, overrides: Mapping[str, str] | None = None) -> Topic:
        """Makes the topic durable, then visible; RequestError if it exists or may not be named so."""
        given = dict(overrides or {})
        with self._lock, _disk_errors(self.path):
            _check_new_topic(name, partitions, self._topics)
            TopicConfig.from_overrides(given)
            topic_id, root = uuid4(), self.path / "topics"
            draft, path = root / f".new-{topic_id}", root / str(topic_id)
            try:
                self._build(draft, name, partitions, given)
                self._disk.rename(draft, path)
                self._disk.sync_directory(root)
                topic = self._open_topic(path)
            except OSError:
                self._undo_creation(draft, path)
                raise
            self._publish({**self._topics, name: topic})
            return topic

    def _undo_creation(self, draft: Path, path: Path) -> None:
        """As far as the disk allows; what is left is removed at the next open."""
        with contextlib.suppress(OSError):
            if self._disk.exists(path):
                self._disk.rename(path, draft)
                self._disk.sync_directory(path.parent)
            self._disk.remove_tree(draft)

    def _build(self, path: Path, name: str, partitions: int, overrides: dict[str, str]) -> None:
        self._disk.mkdir(path)
        for number in range(partitions):
            self._disk.mkdir(path / str(number))
        self._disk.replace_file(path / "topic.json", _topic_json(name, partitions, overrides))

    def delete_topic(self, name: str) -> None:
        """Makes the topic vanish durably, then removes its files. Readers in the midst of it go on."""
        with self._lock, _disk_errors(self.path):
            topic = self._topic(name)
            root = self.path / "topics"
            doomed = root / f".deleted-{topic.id}"
            self._publish({other: t for other, t in self._topics.items() if other != name})
            for log in topic.partitions:
                log.discard()
            self._disk.rename(topic.path, doomed)
            self._disk.sync_directory(root)
            self._disk.remove_tree(doomed)

    def add_partitions(self, name: str, total: int) -> None:
        """Grows the topic to `total` partitions; RequestError if it has that many or more."""
        with self._lock, _disk_errors(self.path):
            topic = self._topic(name)
            if not len(topic.partitions) < total <= _MAX_PARTITIONS:
                raise RequestError(
                    f"{name} has {len(topic.partitions)} partitions; give more, at most {_MAX_PARTITIONS}",
                    code=_INVALID_PARTITIONS,
                )
            for number in range(len(topic.partitions), total):
                self._disk.mkdir(topic.path / str(number))
            self._disk.sync_directory(topic.path)
            self._save(topic, total, topic.overrides)
            for number in range(len(topic.partitions), total):
                log = open_log(topic.path / str(number), topic.config, files=self._files)
                topic.partitions.append(log)

    def alter_config(self, name: str, overrides: Mapping[str, str]) -> None:
        """Replaces all of the topic's overrides, at once and durably."""
        with self._lock, _disk_errors(self.path):
            topic = self._topic(name)
            config = TopicConfig.from_overrides(overrides)
            if config.is_in_memory != topic.config.is_in_memory:
                raise RequestError(
                    f"headrace.storage of {name} is {topic.config.headrace_storage}, and stays so;"
                    " make another topic and copy what is to be kept",
                    code=_INVALID_CONFIG,
                )
            self._save(topic, len(topic.partitions), dict(overrides))
            topic.overrides, topic.config = dict(overrides), config
            for log in topic.partitions:
                log.configure(config)

    def _save(self, topic: Topic, partitions: int, overrides: dict[str, str]) -> None:
        self._disk.replace_file(topic.path / "topic.json", _topic_json(topic.name, partitions, overrides))

    # -- producer ids

    def allocate_producer_ids(self, count: int) -> int:
        """The first of `count` ids that were never given before, and never will be again."""
        with self._lock, _disk_errors(self.path):
            first = self._next_producer_id
            self._disk.replace_file(self.path / "producer-ids", _json({"next": first + count}))
            self._next_producer_id = first + count
            return first

    def _read_producer_ids(self) -> int:
        path = self.path / "producer-ids"
        if not self._disk.exists(path):
            return 0
        return int(_parse_json(path, self._disk.read_file(path))["next"])

    def close(self) -> None:
        """Closes every partition cleanly, so that the next open scans nothing, and lets the lock go."""
        with self._lock:
            try:
                with contextlib.ExitStack() as stack:
                    for topic in self._topics.values():
                        for log in topic.partitions:
                            stack.callback(log.close)
            finally:
                self._files.close()
                self._disk.close(self._lock_fd)


@contextlib.contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DiskError(f"{path}: {error}; check the disk and try again", full=is_full(error)) from error


def check_topic_name(name: str) -> None:
    """Raises RequestError (INVALID_TOPIC_EXCEPTION) unless a topic may bear this name."""
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise RequestError(
            f"topic name {name!r}: use 1 to 249 of letters, digits, '.', '_' and '-', and not '.' or '..'",
            code=_INVALID_TOPIC,
        )


def _check_new_topic(name: str, partitions: int, topics: Mapping[str, Topic]) -> None:
    check_topic_name(name)
    if name in topics:
        raise RequestError(f"topic {name!r} exists", code=_TOPIC_EXISTS)
    if not 1 <= partitions <= _MAX_PARTITIONS:
        raise RequestError(
            f"a topic has from 1 to {_MAX_PARTITIONS} partitions, not {partitions}", code=_INVALID_PARTITIONS
        )


def _topic_json(name: str, partitions: int, overrides: Mapping[str, str]) -> bytes:
    return _json({"name": name, "partitions": partitions, "overrides": dict(overrides)})


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"


def _parse_json(path: Path, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise CorruptionError(
            "is not the JSON that was written; restore it from a copy", path=path, end=len(data)
        )
    return found
