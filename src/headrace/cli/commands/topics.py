"""`headrace topics`: make, show, change and delete topics."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaException, TopicPartition

from headrace.cli.clients import CLIENT_ID, new_log, new_reader
from headrace.cli.failures import UsageError
from headrace.cli.identity import connection_to
from headrace.cli.offsets.positions import parse_position, parse_selector
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, TopicName, Yes
from headrace.cli.prompts import require_confirmation
from headrace.cli.show.topics import partition_count, render_topic, render_topics
from headrace.cli.terminal import Output
from headrace.client import RawFetcher, dropped_records, read_events
from headrace.client.connect import from_kafka
from headrace.client.topics import (
    ANSWER_TIMEOUT_S,
    Bounds,
    CountLimits,
    Log,
    PartitionKey,
    RecordCount,
    RecordCounter,
    add_partitions,
    alter_configs,
    create_topic,
    delete_topic,
    partition_sizes,
    topic_description,
    topic_summaries,
)
from headrace.clock import SystemClock

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Create, show, change and delete topics.")

# What is read so that records can be told from markers and gaps; beyond, there are "at most" so many.
_LIST_LIMITS = CountLimits(bytes=16 << 20, partitions=500)
_DESCRIBE_LIMITS = CountLimits(bytes=64 << 20, partitions=10_000)
_COUNT_TIMEOUT_MS = 1_000

Configs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="Topic configuration; can be repeated."),
]


def parse_configs(given: list[str] | None) -> dict[str, str]:
    """`NAME=VALUE` pairs as a mapping; the value may hold further equals signs."""
    configs = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--config {text!r} is not NAME=VALUE, such as retention.ms=86400000")
        configs[name.strip()] = value
    return configs


@app.command("create")
def create(
    topic: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", metavar="N", min=1, help="Number of partitions. Default: the broker's."
        ),
    ] = None,
    replication: Annotated[
        int | None,
        typer.Option(
            "--replication", metavar="N", min=1, help="Replicas of each partition. Default: the broker's."
        ),
    ] = None,
    config: Configs = None,
    if_missing: Annotated[
        bool,
        typer.Option("--if-missing", help="Succeed, and change nothing, if the topic exists."),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Create a topic."""
    configs = parse_configs(config)
    log = new_log(bootstrap)
    created = not (if_missing and topic in log.cluster().topics)
    if created:
        count = create_topic(log, topic, partitions=partitions, replication=replication, configs=configs)
    else:
        count = len(log.topic(topic).partitions)
    Output(as_json=as_json).document(
        {"topic": topic, "partitions": count, "created": created},
        lambda _: (
            f"{'created' if created else 'already exists:'} topic {topic} with {partition_count(count)}"
        ),
    )


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List topics with their sizes."""
    log = new_log(bootstrap)
    cluster = log.cluster()
    shown = {name: topic for name, topic in cluster.topics.items() if internal or not name.startswith("__")}
    each: list[PartitionKey] = [(name, index) for name, topic in shown.items() for index in topic.partitions]
    sizes = _sizes(log, bootstrap)
    counts = _counts(log, bootstrap, log.bounds(each), sizes, _LIST_LIMITS)
    data = {"topics": topic_summaries(counts, sizes, log.storages(shown))}
    Output(as_json=as_json).document(data, render_topics)


def _sizes(log: Log, bootstrap: str) -> dict[PartitionKey, int]:
    return partition_sizes(connection_to(bootstrap, client_id=CLIENT_ID), log.broker_addresses())


def _counts(
    log: Log,
    bootstrap: str,
    bounds: Mapping[PartitionKey, Bounds],
    sizes: Mapping[PartitionKey, int],
    limits: CountLimits,
) -> dict[PartitionKey, RecordCount]:
    connection = connection_to(bootstrap, client_id=CLIENT_ID, retry_timeout_ms=_COUNT_TIMEOUT_MS)
    with RawFetcher(connection) as fetcher:
        counter = RecordCounter(limits.bytes)
        return counter.count(fetcher, bounds, log.ends(bounds, committed_only=True), sizes, limits)


@app.command("describe")
def describe(
    topic: TopicName,
    all_configs: Annotated[
        bool, typer.Option("--all-configs", help="Include configurations at their default.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show a topic's partitions, sizes and configuration."""
    log = new_log(bootstrap)
    metadata = log.topic(topic)
    each = log.partitions(topic)
    bounds, sizes = log.bounds(each), _sizes(log, bootstrap)
    data = topic_description(
        topic,
        metadata,
        bounds=bounds,
        counts=_counts(log, bootstrap, bounds, sizes, _DESCRIBE_LIMITS),
        sizes=sizes,
        configs=log.topic_configs(topic),
        dropped=dropped_records(read_events(log, lambda: new_reader(bootstrap)), topic),
        all_configs=all_configs or as_json,
    )
    Output(as_json=as_json).document(data, render_topic)


@app.command("alter")
def alter(
    topic: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            metavar="N",
            min=1,
            help="New total number; it can only grow, and keys may change partition.",
        ),
    ] = None,
    config: Configs = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset", metavar="NAME", help="Configuration to reset to its default; can be repeated."
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Add partitions to a topic, or change its configuration."""
    configs, removed = parse_configs(config), unset or []
    if partitions is None and not configs and not removed:
        raise UsageError("nothing to change; pass --partitions, --config or --unset")
    log = new_log(bootstrap)
    log.topic(topic)
    if configs or removed:
        alter_configs(log, topic, configs, removed)
    if partitions is not None:
        add_partitions(log, topic, partitions)
    data = {"topic": topic, "partitions": partitions, "set": configs, "unset": removed}
    Output(as_json=as_json).document(data, lambda _: f"altered topic {topic}")


@app.command("delete")
def delete(
    topic: TopicName, yes: Yes = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False
) -> None:
    """Delete a topic and all its records, after confirmation."""
    log = new_log(bootstrap)
    count = len(log.topic(topic).partitions)
    if not yes:
        require_confirmation(
            f"This deletes topic {topic} with {partition_count(count)} and all its records", topic
        )
    delete_topic(log, topic)
    Output(as_json=as_json).document({"topic": topic, "deleted": True}, lambda _: f"deleted topic {topic}")


@app.command("delete-records")
def delete_records(
    selector: Annotated[
        str, typer.Argument(metavar="TOPIC[:PARTITION]", help="The topic, or one partition of it.")
    ],
    before: Annotated[
        str,
        typer.Option(
            "--before", metavar="OFFSET|TIME|latest", help="Delete the records before this position."
        ),
    ],
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Delete a topic's oldest records, after confirmation."""
    position = parse_position(before, SystemClock().now_ms())
    topic, partition = parse_selector(selector)
    log = new_log(bootstrap)
    each = log.partitions(topic, () if partition is None else (partition,))
    ends = log.place(each, position)
    doomed = sum(ends[one] - bounds.start for one, bounds in log.bounds(each).items())
    if not yes:
        require_confirmation(f"This deletes up to {doomed:,} records of topic {topic}", topic)
    starts = _delete_before(log, ends)
    data = {
        "topic": topic,
        "partitions": [
            {"partition": index, "log_start": start} for (_, index), start in sorted(starts.items())
        ],
    }
    Output(as_json=as_json).document(data, lambda _: f"deleted records of topic {topic}; {_log_starts(data)}")


def _delete_before(log: Log, ends: dict[PartitionKey, int]) -> dict[PartitionKey, int]:
    asked = [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()]
    futures = log.client.delete_records(asked, request_timeout=ANSWER_TIMEOUT_S)
    starts = {}
    for each, future in futures.items():
        try:
            starts[each.topic, each.partition] = future.result().low_watermark
        except KafkaException as raised:
            doing = f"deleting records of {each.topic}:{each.partition}"
            raise from_kafka(raised.args[0], doing, log.bootstrap) from raised
    return starts


def _log_starts(data: dict[str, Any]) -> str:
    return "log start now " + ", ".join(
        f"{each['partition']}: {each['log_start']:,}" for each in data["partitions"]
    )
