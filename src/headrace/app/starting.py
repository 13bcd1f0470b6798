"""The parts that a running application is made of, each ended by the stack that is passed in."""

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.app.collecting import BatchOutput
from headrace.app.derived import record_sink_name
from headrace.app.frames import FrameSink, frame_folder, start_frame
from headrace.app.log_process import EmbeddedLog
from headrace.app.manifest import Manifest
from headrace.app.planning import AppPlan, PlannedFrame, PlannedStream
from headrace.app.records import dead_topic, late_topic
from headrace.app.reports import BatchReport
from headrace.app.sink import StreamSink, ViewWriter
from headrace.client import Connection, Identity, require_log
from headrace.errors import ConfigError
from headrace.streams import local_spark
from headrace.streams.engine.query import StreamQuery, start_stream
from headrace.streams.options import FeedOptions
from headrace.streams.progress import GroupProgress
from headrace.views import RecordSink, TopicSettings
from headrace.views.topics import create_topics

__all__ = ["RunOptions", "Starter", "create_app_topics", "locked", "start_log", "start_spark"]

_DERIVED_PARTITIONS = 4
_LOCK_TRIES, _LOCK_PAUSE_S = 100, 0.05
_ASIDE = TopicSettings(partitions=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Where an application runs and keeps its things.

    `identity` is who the application is towards the log at `bootstrap`; an embedded log
    asks nobody. `http` is the address of the console, which is not started without one.
    `max_records_per_batch` and `max_bytes_per_batch` are those of the source, for every
    query; 0 means no limit. With a local Spark, what is larger than `parcel_bytes` goes from
    one of its processes to the next by files; 0 means nothing. Making a file costs as much as
    taking some kilobytes through Spark.
    """

    data: Path
    bootstrap: str | None = None
    identity: Identity = field(default_factory=Identity)
    master: str | None = None
    cores: int = 2
    rebuild: bool = False
    until_caught_up: bool = False
    trigger_ms: int = 0
    max_restarts: int = 5
    max_records_per_batch: int = 4_000_000
    max_bytes_per_batch: int = 256 << 20
    parcel_bytes: int = 32 << 10
    file: Path | None = None
    http: str | None = None

    @property
    def limits(self) -> dict[str, int]:
        """What a micro-batch takes at most, as the source's options have it."""
        return {
            "max_records_per_batch": self.max_records_per_batch,
            "max_bytes_per_batch": self.max_bytes_per_batch,
        }

    def query_folder(self, name: str) -> Path:
        """Where one query keeps its manifest and its checkpoint."""
        return self.data / "queries" / name

    def wait_for_log(self) -> Connection | None:
        """How the log that was named is reached, once it serves us; None if it is the embedded one."""
        if not self.bootstrap:
            return None
        connection = Connection(bootstrap_servers=self.bootstrap, **self.identity.identity_fields())
        require_log(connection)
        return connection


@contextlib.contextmanager
def locked(data: Path) -> Iterator[None]:
    """Keeps a second run off the same folder; raises ConfigError if there is one."""
    data.mkdir(parents=True, exist_ok=True)
    with (data / "run.lock").open("w") as file:
        if not _lock(file):
            raise ConfigError(f"an application is running on {data} already; stop it, or give another --data")
        yield


def _lock(file: IO[str]) -> bool:
    """Takes the lock. Others may hold it for a moment, which is waited out: who only asks whether it is
    taken, and a child of a run that was killed while it started that child.
    """
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_S)
        else:
            return True
    return False


def start_log(data: Path, ending: contextlib.ExitStack) -> EmbeddedLog:
    """The embedded log, in a folder of its own."""
    log = EmbeddedLog(data / "log")
    ending.callback(log.end)
    return log


def start_spark(name: str, options: RunOptions, ending: contextlib.ExitStack) -> SparkSession:
    """A Spark for this run; a session that was there before is used, and is its owner's to stop."""
    running = SparkSession.getActiveSession()
    with messages_to(options.data / "spark.messages"):
        spark = local_spark(name, cores=options.cores, master=options.master)
    if running is None:
        ending.callback(spark.stop)
    return spark


@contextlib.contextmanager
def messages_to(path: Path) -> Iterator[None]:
    """What is started within writes its messages to the file: Spark and its workers are chatty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def create_app_topics(plan: AppPlan, connection: Connection) -> None:
    """Creates the topics that streams read and views write, where they are missing."""
    wanted = {topic: TopicSettings(partitions=each.partitions) for topic, each in plan.app.streams.items()}
    derived = [view.topic for view in plan.app.views.values() if view.topic is not None]
    wanted |= {name: TopicSettings(partitions=_DERIVED_PARTITIONS) for name in derived}
    create_topics(connection, wanted)


# --- queries ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Starter:
    """Starts queries, and starts them again."""

    spark: SparkSession
    app_name: str
    connection: Connection
    options: RunOptions
    stores: Mapping[str, ViewWriter]
    ending: contextlib.ExitStack
    on_batch: Callable[[BatchReport], None]
    on_step: Callable[[str], None]

    def prepare(self, planned: PlannedStream, manifest: Manifest) -> Callable[[], StreamingQuery]:
        """What starts the query from its checkpoint, now and after each failure."""
        records = RecordSink(
            self.connection,
            record_sink_name(self.app_name, planned),
            manifest.query_id,
            topics={dead_topic(self.app_name): _ASIDE, late_topic(self.app_name): _ASIDE},
        )
        self.ending.callback(records.close)
        progress = _Progress(planned, self.connection)
        self.ending.callback(progress.close)
        sink = StreamSink(
            planned=planned,
            app_name=self.app_name,
            query_id=manifest.query_id,
            stores=self.stores,
            records=records,
            commit_progress=progress.commit,
            told={int(partition): offset for partition, offset in manifest.told.items()},
            on_batch=self.on_batch,
            on_step=self.on_step,
        )
        return partial(self._start, planned, manifest, sink)

    def prepare_frame(self, planned: PlannedFrame, manifest: Manifest) -> Callable[[], StreamingQuery]:
        """The same for a plain DataFrame."""
        sink = FrameSink(planned, manifest.query_id, self.stores, self.on_batch, self.on_step)
        return partial(
            start_frame,
            planned,
            sink,
            checkpoint=frame_folder(self.options.data, planned.view.name) / "checkpoint",
            trigger_ms=self.options.trigger_ms,
            until_caught_up=self.options.until_caught_up,
        )

    def _start(
        self, planned: PlannedStream, manifest: Manifest, sink: Callable[[pa.Table, int], None]
    ) -> StreamingQuery:
        query = StreamQuery(
            plan=planned.plan(manifest.buckets, manifest.spec(planned.stream.spec)),
            steps=tuple(view.steps for view in planned.views),
            options=FeedOptions(
                connection=self.connection,
                max_records_per_batch=self.options.max_records_per_batch,
                max_bytes_per_batch=self.options.max_bytes_per_batch,
            ),
        )
        return start_stream(
            self.spark,
            query,
            checkpoint=str(self.options.query_folder(planned.name) / "checkpoint"),
            output=sink,
            trigger_ms=self.options.trigger_ms,
            until_caught_up=self.options.until_caught_up,
            parcel_bytes=self.options.parcel_bytes,
        )


class _Progress:
    """Commits how far a query has come as the offsets of its group."""

    def __init__(self, planned: PlannedStream, connection: Connection) -> None:
        self._spec = planned.stream.spec
        self._connection = connection
        self._run = ""
        self._group: GroupProgress | None = None

    def commit(self, output: BatchOutput) -> None:
        if not output.marks:
            return
        if self._group is None or self._run != output.marks[0].run:
            self.close()
            self._run = output.marks[0].run
            self._group = GroupProgress(self._connection, self._spec.group, self._spec.topic, self._run)
        self._group.commit(output.following, output.times)

    def close(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None
