"""Everything under one data directory: topics, their partitions, and what must outlive them."""

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from uuid import UUID, uuid4

from headrace.errors import ConfigError, DiskError, HeadraceError, RequestError
from headrace.storage.directory.lock import DirectoryLock, InUse
from headrace.storage.directory.topic_folder import (
    DELETED,
    MOST_PARTITIONS,
    NEW,
    TopicFile,
    check_partition_folder,
    check_unique,
    config_of,
    create_topic_file,
    read_topic_file,
    sort_folders,
    write_topic_file,
)
from headrace.storage.disk import CheckedFile, Disk, is_full, make_directory
from headrace.storage.partition.log import PartitionLog
from headrace.storage.partition.memory_log import open_log
from headrace.storage.segments import Files
from headrace.storage.topic_config import TopicConfig

__all__ = ["FORMAT_VERSION", "DataDirectory", "Topic", "check_topic_name"]

logger = logging.getLogger("headrace.storage")

FORMAT_VERSION = 1
_UNKNOWN_TOPIC_OR_PARTITION = 3
_INVALID_TOPIC = 17
_TOPIC_EXISTS = 36
_INVALID_PARTITIONS = 37
_INVALID_CONFIG = 40
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(slots=True)
class Topic:
    """A topic and its open partitions; `overrides` are what was configured, `config` what holds.

    While `is_being_deleted` its partitions take no records, which is no fault of theirs.
    """

    name: str
    id: UUID
    path: Path
    overrides: dict[str, str]
    config: TopicConfig
    partitions: list[PartitionLog] = field(default_factory=list)
    is_being_deleted: bool = False


class DataDirectory:
    """Opens every partition under `path`, and owns it: a second process is refused.

    Creating, changing and deleting topics is all or nothing, also across a crash: a
    change is seen once the disk has it, and one that fails is taken back. Where the
    disk refuses that too, the change is `unsettled`: nothing is built on it until the
    taking back succeeds, which is tried again with the next change of that topic.

    Methods that change topics wait for the disk; they may run on any thread, one at a
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
        self._topics_path = path / "topics"
        self._disk = disk if disk is not None else Disk()
        self._files = Files(
            self._disk, limit=open_files, index_cache_bytes=index_cache_bytes, on_sync=on_sync
        )
        self._lock = threading.Lock()
        self._unsettled: dict[str, Callable[[], None]] = {}  # by topic: how to take a failed change back
        make_directory(self._disk, path)
        self._held = self._hold()
        try:
            make_directory(self._disk, self._topics_path)
            self.cluster_id = self._open_format()
            self._disk.sync_directory(path)  # what a killed process left is seen but may not be durable
            self._disk.sync_directory(self._topics_path)
            self._next_producer_id = self._read_producer_ids()
            self._publish({topic.name: topic for topic in self._open_topics()})
        except BaseException:
            self._held.release()
            raise

    # -- opening

    def _hold(self) -> DirectoryLock:
        try:
            return DirectoryLock(self._disk, self.path)
        except InUse as error:
            raise ConfigError(f"{self.path} is {error}; stop it, or use another --data directory") from None

    def _open_format(self) -> str:
        """The cluster id; writes the format file of a new directory."""
        file = CheckedFile(
            self._disk,
            self.path / "headrace.json",
            fields=("format_version", "cluster_id"),
            remedy="restore it from a copy",
        )
        found = file.read()
        if found is None:
            if sort_folders(self._topics_path, self._disk.list(self._topics_path))[0]:
                raise ConfigError(f"{file.path} is missing although there are topics; restore it from a copy")
            cluster_id = str(uuid4())
            self._sync_parents()
            file.write({"format_version": FORMAT_VERSION, "cluster_id": cluster_id})
            return cluster_id
        version, named = found.fields.get("format_version"), found.fields.get("cluster_id")
        if version != FORMAT_VERSION:
            raise ConfigError(
                f"{self.path} has format version {version}, this Headrace reads {FORMAT_VERSION}; "
                "install the version that wrote it, or a newer one"
            )
        if not isinstance(named, str):
            raise file.damaged("it names no cluster id")
        file.add_checksum(found)
        return named

    def _sync_parents(self) -> None:
        """A process that was killed may have made them and synced none; what is not ours may refuse."""
        for parent in self.path.parents:
            with contextlib.suppress(OSError):
                self._disk.sync_directory(parent)

    def _open_topics(self) -> list[Topic]:
        """Looks at all of them before anything is changed."""
        folders, leftovers = sort_folders(self._topics_path, self._disk.list(self._topics_path))
        described = {folder: read_topic_file(self._disk, folder) for folder in folders}
        check_unique(described)
        for leftover in leftovers:
            self._remove(leftover)
        return [self._open_topic(folder, each) for folder, each in described.items()]

    def _open_topic(self, path: Path, described: TopicFile) -> Topic:
        name, partitions, overrides = described
        topic = Topic(name, UUID(path.name), path, overrides, config_of(path, described))
        topic.partitions += self._open_partitions(topic, 0, partitions)
        return topic

    def _open_partitions(self, topic: Topic, first: int, end: int) -> list[PartitionLog]:
        """All of them or, with an error, none."""
        logs: list[PartitionLog] = []
        try:
            for number in range(first, end):
                check_partition_folder(self._disk, topic.path / str(number))
                logs.append(open_log(topic.path / str(number), topic.config, files=self._files))
        except (OSError, HeadraceError):
            for log in logs:
                log.discard()
            raise
        return logs

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

    @contextlib.contextmanager
    def _changing(self, topic: str | None = None) -> Iterator[None]:
        """One change at a time, in the directory that was opened, on nothing unsettled; raises DiskError."""
        with self._lock, _disk_errors(self.path):
            self.check_reachable()
            if topic in self._unsettled:
                self._unsettled[topic]()
                del self._unsettled[topic]
            yield

    def check_reachable(self) -> None:
        """Raises DiskError if the directory was removed, moved or replaced by another since it was opened."""
        if not self._held.is_reachable or not self._disk.exists(self._topics_path):
            raise DiskError(
                f"{self.path} is no longer the directory that was opened: it was removed or moved; "
                "bring it back, then restart the broker"
            )

    @property
    def unsettled(self) -> tuple[str, ...]:
        """Topics whose last change failed and could not be taken back; any thread."""
        return tuple(self._unsettled.copy())

    def _take_back(self, name: str, undo: Callable[[], None]) -> None:
        try:
            undo()
        except OSError as error:
            self._unsettled[name] = undo
            logger.error(
                "topic %s: a change failed and could not be taken back: %s; check the disk and make it again",
                name,
                error,
            )

    def create_topic(self, name: str, partitions: int, overrides: Mapping[str, str] | None = None) -> Topic:
        """Makes the topic durable, then visible; RequestError if it exists or may not be named so."""
        described = TopicFile(name, partitions, dict(overrides or {}))
        with self._changing(name):
            _check_new_topic(name, partitions, self._topics)
            TopicConfig.from_overrides(described.overrides)
            topic = self._create(uuid4(), described)
            self._publish({**self._topics, name: topic})
            return topic

    def _create(self, topic_id: UUID, described: TopicFile) -> Topic:
        draft, path = self._topics_path / f"{NEW}{topic_id}", self._topics_path / str(topic_id)
        try:
            self._build(draft, described)
            self._disk.rename(draft, path)
        except OSError:
            self._remove(draft)
            raise
        try:
            self._disk.sync_directory(self._topics_path)
            return self._open_topic(path, described)
        except (OSError, HeadraceError):
            self._take_back(described.name, lambda: self._undo_creation(draft, path))
            raise

    def _build(self, path: Path, described: TopicFile) -> None:
        self._disk.mkdir(path)
        for number in range(described.partitions):
            self._disk.mkdir(path / str(number))
        create_topic_file(self._disk, path, described)

    def _undo_creation(self, draft: Path, path: Path) -> None:
        if self._disk.exists(path):
            self._disk.rename(path, draft)
        self._disk.sync_directory(self._topics_path)
        self._remove(draft)

    def _remove(self, path: Path) -> None:
        """Removes what is no topic any more, or not yet; what stays is removed at the next open."""
        try:
            if self._disk.exists(path):
                self._disk.remove_tree(path)
        except OSError as error:
            logger.warning("%s could not be removed, and takes space until it is: %s", path, error)

    def delete_topic(self, name: str) -> None:
        """Makes the topic vanish durably, then removes its files. Readers in the midst of it go on.

        Meanwhile it takes no records: whether they were of the topic's could not be told.
        """
        with self._changing(name), contextlib.ExitStack() as stack:
            topic = self._topic(name)
            topic.is_being_deleted = True
            for log in topic.partitions:
                stack.enter_context(log.suspended(f"the topic {name} is being deleted"))
            doomed = self._topics_path / f"{DELETED}{topic.id}"
            try:
                self._disk.rename(topic.path, doomed)
            except OSError:
                _resume(topic)
                raise
            try:
                self._disk.sync_directory(self._topics_path)
            except OSError:
                self._take_back(name, lambda: self._undo_deletion(topic, doomed))
                raise
            self._publish({other: t for other, t in self._topics.items() if other != name})
            for log in topic.partitions:
                log.discard()
        self._remove(doomed)

    def _undo_deletion(self, topic: Topic, doomed: Path) -> None:
        """Until that is durable nothing is appended: it would be lost if the deletion held after all."""
        if self._disk.exists(doomed):
            self._disk.rename(doomed, topic.path)
        self._disk.sync_directory(self._topics_path)
        _resume(topic)

    def add_partitions(self, name: str, total: int) -> None:
        """Grows the topic to `total` partitions; RequestError if it has that many or more."""
        with self._changing(name):
            topic = self._topic(name)
            present = len(topic.partitions)
            if not present < total <= MOST_PARTITIONS:
                raise RequestError(
                    f"{name} has {present} partitions; give more, at most {MOST_PARTITIONS}",
                    code=_INVALID_PARTITIONS,
                )
            for number in range(present, total):
                self._disk.mkdir(topic.path / str(number))
            self._disk.sync_directory(topic.path)
            logs = self._open_partitions(topic, present, total)
            try:
                write_topic_file(self._disk, topic.path, TopicFile(name, total, topic.overrides))
            except OSError:
                for log in logs:
                    log.discard()
                raise
            topic.partitions += logs

    def alter_config(self, name: str, overrides: Mapping[str, str]) -> None:
        """Replaces all of the topic's overrides, at once and durably."""
        with self._changing(name):
            topic = self._topic(name)
            config = TopicConfig.from_overrides(overrides)
            if config.is_in_memory != topic.config.is_in_memory:
                raise RequestError(
                    f"headrace.storage of {name} is {topic.config.headrace_storage}, and stays so;"
                    " make another topic and copy what is to be kept",
                    code=_INVALID_CONFIG,
                )
            described = TopicFile(name, len(topic.partitions), dict(overrides))
            write_topic_file(self._disk, topic.path, described)
            topic.overrides, topic.config = dict(overrides), config
            for log in topic.partitions:
                log.configure(config)

    # -- producer ids

    def allocate_producer_ids(self, count: int) -> int:
        """The first of `count` ids that were never given before, and never will be again."""
        with self._changing():
            first = self._next_producer_id
            self._producer_ids().write({"next": first + count})
            self._next_producer_id = first + count
            return first

    def _producer_ids(self) -> CheckedFile:
        return CheckedFile(
            self._disk,
            self.path / "producer-ids",
            fields=("next",),
            remedy='restore it from a copy, or write {"next": N} into it, with an N above every producer id'
            " ever given, such as 1000000000",
        )

    def _read_producer_ids(self) -> int:
        file = self._producer_ids()
        found = file.read()
        if found is None:
            return 0
        following = found.fields.get("next")
        if type(following) is not int or not 0 <= following < 2**63:
            raise file.damaged("it names no producer id")
        file.add_checksum(found)
        return following

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
                self._held.release()


def _resume(topic: Topic) -> None:
    for log in topic.partitions:
        log.resume()
    topic.is_being_deleted = False


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
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise RequestError(
            f"a topic has from 1 to {MOST_PARTITIONS} partitions, not {partitions}", code=_INVALID_PARTITIONS
        )
