"""The folders under `topics`: which of them are topics, and what `topic.json` says of one."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from headrace.errors import ConfigError, CorruptionError, RequestError
from headrace.storage.disk import CheckedFile, Disk
from headrace.storage.topic_config import TopicConfig

__all__ = [
    "DELETED",
    "MOST_PARTITIONS",
    "NEW",
    "TopicFile",
    "check_partition_folder",
    "check_unique",
    "config_of",
    "create_topic_file",
    "read_topic_file",
    "sort_folders",
    "write_topic_file",
]

NEW, DELETED = ".new-", ".deleted-"  # creations and deletions under way
MOST_PARTITIONS = 10_000
_OF_THE_FILE_SYSTEM = {"lost+found", ".snapshot", ".zfs", ".DS_Store"}


class TopicFile(NamedTuple):
    """What `topic.json` holds."""

    name: str
    partitions: int
    overrides: dict[str, str]


def sort_folders(root: Path, names: Iterable[str]) -> tuple[list[Path], list[Path]]:
    """The folders of topics, and what interrupted creations and deletions left, both in order.

    ConfigError names what is neither, nor the file system's own.
    """
    topics, leftovers = [], []
    for name in sorted(names):
        if _is_id(name):
            topics.append(root / name)
        elif name.startswith((NEW, DELETED)):
            leftovers.append(root / name)
        elif name not in _OF_THE_FILE_SYSTEM:
            raise ConfigError(
                f"{root / name} is not a topic's folder (those are named by a topic's id); "
                "move it out of the data directory and start again"
            )
    return topics, leftovers


def _is_id(name: str) -> bool:
    try:
        return str(UUID(name)) == name  # as we write it: no other spelling is a second folder of one id
    except ValueError:
        return False


def check_unique(described: Mapping[Path, TopicFile]) -> None:
    """ConfigError names two folders that hold a topic of one name: which is the right one is not known."""
    folders: dict[str, Path] = {}
    for folder, topic in described.items():
        other = folders.setdefault(topic.name, folder)
        if other is not folder:
            raise ConfigError(
                f"{other} and {folder} both hold the topic {topic.name!r}; keep the one that has its "
                "records, move the other out of the data directory, and start again"
            )


def read_topic_file(disk: Disk, folder: Path) -> TopicFile:
    """What the topic's file says; one of the earlier format gets its checksum.

    CorruptionError if the file is missing or is not what was written.
    """
    file = _file(disk, folder)
    found = file.read()
    if found is None:
        raise file.damaged("it is missing")
    described = _described(file, found.fields)
    file.add_checksum(found)
    return described


def _described(file: CheckedFile, fields: dict[str, Any]) -> TopicFile:
    try:
        name, partitions, overrides = fields["name"], fields["partitions"], fields["overrides"]
        texts = [name, *overrides, *overrides.values()]
        right = type(partitions) is int and 1 <= partitions <= MOST_PARTITIONS
    except (KeyError, AttributeError, TypeError):
        raise file.damaged("a field is missing, or is of another kind") from None
    if not right or not all(isinstance(text, str) for text in texts):
        raise file.damaged("a field has a value that is never written")
    return TopicFile(name, partitions, overrides)


def create_topic_file(disk: Disk, folder: Path, described: TopicFile) -> None:
    """Writes the file of a folder that is no topic yet, durably."""
    _file(disk, folder).create(described._asdict())


def write_topic_file(disk: Disk, folder: Path, described: TopicFile) -> None:
    """Returns when it is on disk; OSError if the disk refuses, and the file is then as it was."""
    _file(disk, folder).write(described._asdict())


def config_of(folder: Path, described: TopicFile) -> TopicConfig:
    """The topic's configuration; ConfigError if it holds what this version does not know."""
    try:
        return TopicConfig.from_overrides(described.overrides)
    except RequestError as error:
        raise ConfigError(f"{folder / 'topic.json'}: {error}; install the version that wrote it") from error


def check_partition_folder(disk: Disk, path: Path) -> None:
    """CorruptionError if a partition's folder, which was made with its topic, is gone."""
    if not disk.exists(path):
        raise CorruptionError(
            "the folder of the partition is missing; restore it from a copy, or make it, empty, "
            "to go on without its records",
            path=path,
        )


def _file(disk: Disk, folder: Path) -> CheckedFile:
    remedy = f"restore it from a copy, or move {folder} out of the data directory to go on without this topic"
    return CheckedFile(disk, folder / "topic.json", fields=TopicFile._fields, remedy=remedy)
