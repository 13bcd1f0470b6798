"""`headrace topics`: make, show, change and delete topics."""

from typing import Annotated, Any

import typer
from confluent_kafka import KafkaException, TopicPartition

from headrace.cli.connection import admin
from headrace.cli.events import dropped_records, read_events
from headrace.cli.failures import UsageFaultError
from headrace.cli.identity import connection_to
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, TopicName, Yes
from headrace.cli.output import Output
from headrace.cli.positions import parse_position, parse_selector
from headrace.cli.prompts import require_confirmation
from headrace.cli.topic_views import partition_count, render_description, render_topics
from headrace.client.failures import from_kafka
from headrace.client.log_dirs import partition_sizes
from headrace.client.questions import ANSWER_TIMEOUT_S, Log, Partition
from headrace.client.topic_changes import add_partitions, alter_configs, create_topic, delete_topic
from headrace.client.topic_data import described, summaries
from headrace.clock import SystemClock

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Make, show, change and delete topics.")

Configs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="Configuration of the topic; repeat for more."),
]


def parse_configs(given: list[str] | None) -> dict[str, str]:
    """`NAME=VALUE` pairs as a mapping; the value may hold further equals signs."""
    configs = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageFaultError(f"--config {text!r} is not NAME=VALUE; such as retention.ms=86400000")
        configs[name.strip()] = value
    return configs


@app.command("create")
def create(
    topic: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", metavar="N", min=1, help="How many; the broker's default when left out."
        ),
    ] = None,
    replication: Annotated[
        int | None,
        typer.Option(
            "--replication", metavar="N", min=1, help="Copies of each; the broker's default when left out."
        ),
    ] = None,
    config: Configs = None,
    if_missing: Annotated[
        bool,
        typer.Option("--if-missing", help="Succeed when the topic is already there, and leave it as it is."),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Make a topic."""
    configs = parse_configs(config)
    log = Log(admin(bootstrap), bootstrap)
    created = not (if_missing and topic in log.cluster().topics)
    if created:
        count = create_topic(log, topic, partitions=partitions, replication=replication, configs=configs)
    else:
        count = len(log.topic(topic).partitions)
    Output(as_json=as_json).document(
        {"topic": topic, "partitions": count, "created": created},
        lambda _: f"{'created' if created else 'already there:'} topic {topic} with {partition_count(count)}",
    )


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Also the log's own topics.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List topics with their sizes."""
    log = Log(admin(bootstrap), bootstrap)
    cluster = log.cluster()
    shown = {name: topic for name, topic in cluster.topics.items() if internal or not name.startswith("__")}
    each: list[Partition] = [(name, index) for name, topic in shown.items() for index in topic.partitions]
    sizes = _sizes(log, bootstrap)
    data = {"topics": summaries(each, log.bounds(each), sizes, log.storages(shown))}
    Output(as_json=as_json).document(data, render_topics)


def _sizes(log: Log, bootstrap: str) -> dict[Partition, int]:
    return partition_sizes(connection_to(bootstrap, client_id="headrace-cli"), log.broker_addresses())


@app.command("describe")
def describe(
    topic: TopicName,
    all_configs: Annotated[
        bool, typer.Option("--all-configs", help="Also configurations that stand at their default.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show a topic's partitions, sizes and configuration."""
    log = Log(admin(bootstrap), bootstrap)
    metadata = log.topic(topic)
    each = log.partitions(topic)
    data = described(
        topic,
        metadata,
        bounds=log.bounds(each),
        sizes=_sizes(log, bootstrap),
        configs=log.topic_configs(topic),
        dropped=dropped_records(read_events(log), topic),
        all_configs=all_configs or as_json,
    )
    Output(as_json=as_json).document(data, render_description)


@app.command("alter")
def alter(
    topic: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", metavar="N", min=1, help="New total; it can only grow, and keys may move."
        ),
    ] = None,
    config: Configs = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset", metavar="NAME", help="Configuration to put back to its default; repeat for more."
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Add partitions to a topic, or change its configuration."""
    configs, removed = parse_configs(config), unset or []
    if partitions is None and not configs and not removed:
        raise UsageFaultError("nothing to alter; give --partitions, --config or --unset")
    log = Log(admin(bootstrap), bootstrap)
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
    """Delete a topic and every record in it; asks for its name."""
    log = Log(admin(bootstrap), bootstrap)
    count = len(log.topic(topic).partitions)
    if not yes:
        require_confirmation(
            f"This deletes topic {topic} with {partition_count(count)} and all its records", topic
        )
    delete_topic(log, topic)
    Output(as_json=as_json).document({"topic": topic, "deleted": True}, lambda _: f"deleted topic {topic}")


@app.command("delete-records")
def delete_records(
    selector: Annotated[str, typer.Argument(metavar="TOPIC[:PARTITION]", help="Which partitions.")],
    before: Annotated[
        str,
        typer.Option("--before", metavar="OFFSET|TIME|latest", help="Delete the records before this place."),
    ],
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Delete the oldest records of a topic; asks for its name."""
    position = parse_position(before, SystemClock().now_ms())
    topic, partition = parse_selector(selector)
    log = Log(admin(bootstrap), bootstrap)
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


def _delete_before(log: Log, ends: dict[Partition, int]) -> dict[Partition, int]:
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
