"""`headrace queues`: share groups, what is left in them, and their dead letters."""

from typing import Annotated, Any

import typer

from headrace.cli.clients import Clients, new_log, reachable
from headrace.cli.failures import UsageError
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from headrace.cli.terminal import Output, table_text
from headrace.client import (
    DEAD_LETTER_TOPIC_CONFIG,
    describe_queue,
    list_queues,
    queue_configs,
    set_queue_configs,
)
from headrace.client.deadletters import Redrive
from headrace.client.topics import Log

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show and configure queues (share groups).",
)

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue (its group id).")]


@app.command("list")
def list_command(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """List queues with their state and backlog."""
    Output(as_json=as_json).document({"queues": list_queues(reachable(bootstrap))}, _render_list)


def _render_list(data: dict[str, Any]) -> str:
    if not data["queues"]:
        return "no queues; one appears when a share consumer joins it"
    columns = ("queue", "state", "members", "topics", "left")
    rows = [
        (row["queue"], row["state"], row["members"], ", ".join(row["topics"]), row["left"])
        for row in data["queues"]
    ]
    return table_text(columns, rows)


@app.command("describe")
def describe(queue: QueueName, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show a queue's members, positions, settings and dead letters."""
    found = describe_queue(reachable(bootstrap), queue)
    log = new_log(bootstrap)
    configs = queue_configs(log, queue)
    found["settings"] = configs
    found["dead_letters"] = {
        "topic": configs[DEAD_LETTER_TOPIC_CONFIG],
        "records": _count(log, configs[DEAD_LETTER_TOPIC_CONFIG]),
    }
    Output(as_json=as_json).document(found, _render_queue)


def _count(log: Log, topic: str) -> int:
    """Records in a topic, which queues write without transactions; none if it does not exist yet."""
    if topic not in log.cluster().topics:
        return 0
    return sum(limits.end - limits.start for limits in log.bounds(log.partitions(topic)).values())


def _render_queue(data: dict[str, Any]) -> str:
    dead = data["dead_letters"]
    parts = [
        f"queue {data['queue']}: {data['state']}",
        table_text(
            ("topic", "partition", "start", "left"),
            [(row["topic"], row["partition"], row["start"], row["left"]) for row in data["partitions"]],
        ),
        table_text(
            ("member", "client", "host"),
            [(row["member_id"], row["client_id"], row["host"]) for row in data["members"]],
        ),
        table_text(("setting", "value"), sorted(data["settings"].items())),
        f"dead letters: {dead['records']:,} in {dead['topic']}",
    ]
    return "\n\n".join(parts)


@app.command("set")
def set_command(
    queue: QueueName,
    settings: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE", help="Settings; NAME= resets one to its default."),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Configure a queue; it need not exist yet."""
    changes: dict[str, str | None] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise UsageError(f"{setting!r} is not NAME=VALUE; see docs/guides/queues.md for the names")
        changes[name] = value or None
    log = new_log(bootstrap)
    set_queue_configs(log, queue, changes)
    data = {"queue": queue, "settings": queue_configs(log, queue)}
    Output(as_json=as_json).document(
        data, lambda shown: table_text(("setting", "value"), sorted(shown["settings"].items()))
    )


@app.command("redrive")
def redrive(
    queue: QueueName,
    from_topic: Annotated[
        str | None,
        typer.Option("--from", metavar="TOPIC", help="Dead-letter topic. Default: the queue's current one."),
    ] = None,
    most: Annotated[
        int | None, typer.Option("--most", metavar="N", min=1, help="Look at no more than N.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Redrive a queue's dead letters to their topics, each once."""
    log = new_log(bootstrap)
    topic = from_topic or queue_configs(log, queue)[DEAD_LETTER_TOPIC_CONFIG]
    work = Redrive(log, queue, topic, Clients(bootstrap), most=most)
    work.run()
    data = {"queue": queue, "from": topic, "sent": work.sent, "skipped": work.skipped}
    Output(as_json=as_json).document(data, _render_redrive)


def _render_redrive(data: dict[str, Any]) -> str:
    skipped = f"; {data['skipped']:,} belong to other queues and stay" if data["skipped"] else ""
    return f"{data['sent']:,} dead letters of {data['from']} redriven{skipped}"
