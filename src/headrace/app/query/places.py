"""Names of partitions and folders where a query reads several topics. Pure."""

from collections.abc import Mapping
from pathlib import Path

__all__ = ["graph_folder", "of_topic", "place", "stage_folder"]


def graph_folder(data: Path, view: str) -> Path:
    """Where the query of one dataflow keeps its manifest and its checkpoint."""
    return data / "dataflows" / view


def stage_folder(folder: Path, stage: int) -> Path:
    """Where the state of a stage is, in the folder of its query."""
    checkpoint = folder / "checkpoint"
    return checkpoint / "buckets" if folder.parent.name == "queries" else checkpoint / "stages" / str(stage)


def place(topic: str, partition: int) -> str:
    """A partition, with its topic."""
    return f"{topic}/{partition}"


def of_topic(offsets: Mapping[str, int], topic: str) -> dict[int, int]:
    """Of offsets by place those of one topic, by partition."""
    split = [(name.rpartition("/"), offset) for name, offset in offsets.items()]
    return {int(partition): offset for (name, _, partition), offset in split if name == topic}
