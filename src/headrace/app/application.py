"""The application a user writes."""

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from headrace.app.background_run import BackgroundRun
from headrace.app.hooks import HookStart, make_backoff, make_hook, seconds, several
from headrace.app.relation import LOOK_BACK_US, Relation, Table, history_of, keyed_view, windows_of
from headrace.app.status.alerts import Thresholds, parse_share
from headrace.app.stream import Aggregation, Stream
from headrace.client import Connection
from headrace.errors import ConfigError
from headrace.hooks import Email, Hook, Webhook
from headrace.nearest import no_such
from headrace.streams.operators import microseconds as duration_us
from headrace.views import history_view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.app.captured import CapturedTable
    from headrace.capture import CaptureSpec
    from headrace.derived import Follow, TargetSpec
    from headrace.personal import KeyStore
    from headrace.sourcing import Entities, EntityKind, EntityType, Reaction
    from headrace.sourcing.projections import Projection

__all__ = ["App", "View"]

Duration = str | timedelta
Result = "Aggregation | Stream | DataFrame"
Function = Callable[[], Any]
Last = Literal["event_time", "arrival"]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A named result: the function that declares it, and where it is kept.

    `last` is by what the last row of a key is found, None where nothing was said. `history_us`
    is how far back a served table can be read as it was.
    """

    name: str
    function: Function
    key: tuple[str, ...]
    store: str | None
    topic: str | None = None
    doc: str = ""
    last: Last | None = None
    history_us: int | None = None


@dataclass(slots=True)
class App:
    """Streams, and the views and topics made from them.

    `store` is where views are kept unless they say otherwise: a URL such as
    `sqlite:///shop.db` or `postgresql://…`; without one, SQLite in the data folder.
    """

    name: str
    store: str | None = None
    streams: dict[str, Stream] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    hooks: dict[str, Hook] = field(default_factory=dict)
    captures: "dict[str, CaptureSpec]" = field(default_factory=dict)
    followers: "dict[str, Follow]" = field(default_factory=dict)
    entity_types: "dict[str, EntityType]" = field(default_factory=dict)
    reactions: "dict[str, Reaction]" = field(default_factory=dict)
    projections: "dict[str, Projection]" = field(default_factory=dict)
    _entities: "Entities | None" = field(default=None, init=False, repr=False, compare=False)
    _keys: "KeyStore | None" = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_name("application", self.name)

    def stream(
        self,
        topic: str,
        *,
        schema: str,
        event_time: str | None = None,
        sent_at: str | None = None,
        time_unit: Literal["s", "ms", "us", "ns"] = "ms",
        lateness: Duration = "10 seconds",
        late: Literal["drop", "correct"] = "drop",
        correct_for: Duration = "1 hour",
        decoder: Literal["json", "raw"] = "json",
        lenient: bool = False,
        max_ahead: Duration = "1 hour",
        idle_after: Duration = "5 seconds",
        start: str = "earliest",
        on_gap: Literal["fail", "skip"] = "fail",
        partitions: int = 4,
        late_alert: str | float | None = "5 %",
        dead_alert: str | float | None = "1 %",
        lag_alert: Duration | None = "1 minute",
    ) -> Stream:
        """A topic as a stream of rows.

        Event time is the column `event_time`, or a field inside one (`"payload.at"`), or what
        an expression over them gives (`"to_timestamp(concat(day, ' ', clock))"`), or the
        record's own time without one; numbers are since the epoch, in `time_unit`.
        With `sent_at`, the device's clock is corrected by what the log says. A `lenient`
        stream reads values that are nearly of the schema, such as numbers in strings. Results
        wait `lateness` for stragglers; later ones are dropped and kept in the late
        topic, or, with `late="correct"`, correct what was published for `correct_for`.
        A topic that is missing is created, with that many partitions. There is an alert
        while more than these shares of records are late or cannot be read, or the
        views are further behind than that; None asks for none.
        """
        from headrace.streams import StreamSpec

        _check_name("topic", topic)
        if partitions < 1:
            raise ConfigError(f"stream {topic!r}: partitions={partitions}; a topic has 1 or more")
        if topic in self.streams or topic in self.tables:
            raise ConfigError(f"stream {topic!r} is declared twice; keep one and use it for both")
        if late not in ("drop", "correct"):
            raise ConfigError(f'late={late!r} is neither "drop" nor "correct"')
        spec = StreamSpec(
            topic=topic,
            schema=schema,
            decoder=decoder,
            event_time=event_time,
            sent_at=sent_at,
            time_unit=time_unit,
            lenient=lenient,
            lateness_us=duration_us(lateness),
            max_ahead_us=duration_us(max_ahead),
            idle_after_us=duration_us(idle_after),
            start=start,
            on_gap=on_gap,
            group=f"{self.name}.{topic}",
        )
        stream = Stream(
            spec=spec,
            correct_for_us=duration_us(correct_for) if late == "correct" else 0,
            partitions=partitions,
            thresholds=Thresholds(
                late_share=parse_share("late_alert", late_alert),
                dead_share=parse_share("dead_alert", dead_alert),
                delay_s=None if lag_alert is None else duration_us(lag_alert) / 1_000_000,
            ),
        )
        self.streams[topic] = stream
        return stream

    def table(
        self,
        topic: str,
        *,
        key: str | Sequence[str] = (),
        schema: str = "",
        source: "CapturedTable | None" = None,
        format: Literal["upserts", "debezium"] = "upserts",  # noqa: A002 - the word that Spark's users know
        valid_from: str | None = None,
        time_unit: Literal["s", "ms", "us", "ns"] = "ms",
        history: Duration | None = None,
        serve: bool | str = False,
        store: str | None = None,
        lateness: Duration = "0 seconds",
        late: Literal["drop", "correct"] = "drop",
        correct_for: Duration = "1 hour",
        lenient: bool = False,
        idle_after: Duration = "5 seconds",
        on_gap: Literal["fail", "skip"] = "fail",
        partitions: int = 4,
        transactions: str | None = None,
    ) -> Table:
        """A topic as a table: the newest row of each `key`, through upserts and deletes.

        A value is a row as it now is, and null where the key is gone; or, with
        `format="debezium"`, a change in Debezium's envelope. A row is valid from the time in the
        column `valid_from`, else from when its source committed it, else from the record's own
        time. Streams that are joined with it find the rows that were valid within `history`, or
        within a day. With `serve` it is a view too, under the topic's name or the one given; with
        `history` it can then be read as it was at any time and offset within it. A row that is
        more than `lateness` behind is late: joins that have used the row before it stand, or,
        with `late="correct"`, are corrected for `correct_for`. With `transactions`, the topic on
        which its source notes where transactions end, views never show half of one.

        With `source`, which `capture` returns, it is a table of a database: topic, key, columns,
        format and transactions come from there.
        """
        from headrace.streams import StreamSpec

        if source is not None:
            topic, format, transactions = source.topic, "debezium", source.transactions  # noqa: A001
            key, schema = key or source.require_key(), schema or source.schema.spark_ddl
        if not key or not schema:
            raise ConfigError(f"table {topic!r} needs key= and schema=, or source=app.capture(…)")
        _check_name("topic", topic)
        if transactions is not None:
            _check_name("topic", transactions)
        if topic in self.tables or topic in self.streams:
            raise ConfigError(f"topic {topic!r} is declared twice; keep one and use it for both")
        keys = (key,) if isinstance(key, str) else tuple(key)
        if late not in ("drop", "correct"):
            raise ConfigError(f'late={late!r} is neither "drop" nor "correct"')
        spec = StreamSpec(
            topic=topic,
            schema=schema,
            event_time=valid_from,
            time_unit=time_unit,
            lenient=lenient,
            lateness_us=duration_us(lateness),
            idle_after_us=duration_us(idle_after),
            on_gap=on_gap,
            group=f"{self.name}.{topic}",
            table=format,
            table_key=keys,
            transactions=transactions or "",
            captured=None if source is None else source.columns,
        )
        table = Table(
            spec=spec,
            key=keys,
            correct_for_us=duration_us(correct_for) if late == "correct" else 0,
            keep_us=LOOK_BACK_US if history is None else duration_us(history),
            partitions=partitions,
        )
        self.tables[topic] = table
        if serve:
            self._serve(table, topic if serve is True else serve, store, has_history=history is not None)
        return table

    def entity(
        self,
        name: str,
        *,
        decide: Callable[..., Any],
        evolve: Callable[..., Any],
        initial: Any,
        partitions: int = 4,
        snapshot_every: int = 1_000,
        snapshots: int = 1,
        remember: int = 100_000,
        subject: str | None = None,
    ) -> "EntityKind":
        """Declares a type of entities, whose state follows from their events.

        `decide(command, state)` returns the events of a command or raises Rejected;
        `evolve(state, event)` returns the state after an event; `initial` is the state before
        the first. Both are pure, and their annotations name the types of commands and events:
        dataclasses, or pydantic models. Up to `partitions` processes share the entities. States
        are saved after `snapshot_every` events of a partition, and when it is idle; raise
        `snapshots` if code that `evolve` calls gives states a new meaning. A command that is
        sent again finds its answer among the last `remember` of its partition. Fields of commands
        and events that are `Personal[…]` belong to the subject that the field `subject` names, or
        to the entity.
        """
        from headrace.sourcing import make_entity_type

        _check_name("entity", name)
        if name in self.entity_types:
            raise ConfigError(f"entity {name!r} is declared twice; rename one of them")
        if min(partitions, snapshot_every, remember) < 1:
            raise ConfigError(f"entity {name!r}: partitions, snapshot_every and remember are 1 or more")
        self.entity_types[name] = make_entity_type(
            name,
            decide,
            evolve,
            initial,
            partitions=partitions,
            snapshot_every=snapshot_every,
            snapshots=snapshots,
            remember=remember,
            subject=subject,
        )
        return self.entities[name]

    def react(self, *events: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declares a reaction: the function gets each event of these types, and returns commands.

        It is called with a `Happened` (entity, event, version, at, by, correlation) and returns
        `entity.command(…)`, several of them, or None. The commands of an event are sent exactly
        once; those with `after=` wait so long after the event. It may be called again for the
        same event, so it has no effects of its own. A new reaction begins with the events that
        happen from then on.
        """

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            self._add_reaction(function, frozenset(events))
            return function

        return declare

    def _add_reaction(self, function: Callable[..., Any], events: frozenset[type]) -> None:
        from headrace.sourcing import Reaction

        name = function.__name__
        _check_name("reaction", name)
        if name in self.reactions:
            raise ConfigError(f"reaction {name!r} is declared twice; rename one of them")
        kinds = tuple(each for each in self.entity_types.values() if events & {*each.events.values()})
        known = {event for kind in kinds for event in kind.events.values()}
        if not events or events - known:
            unknown = ", ".join(sorted(each.__name__ for each in events - known)) or "nothing"
            raise ConfigError(
                f"reaction {name!r}: {unknown} is not an event of any entity; "
                "declare the entities first, and name their types of events: @app.react(OrderPlaced)"
            )
        self.reactions[name] = Reaction(name=name, function=function, events=events, kinds=kinds)

    def projection(
        self,
        *events: type,
        key: str | Sequence[str] = "entity",
        store: str | None = None,
        name: str | None = None,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declares a projection: a view of entities that the processes which serve them keep, without Spark.

        The function gets the row that there is for an event, or None, and the event as a `Happened`
        (entity, event, version, at, by, correlation); it returns the row as it is then, or None if there is
        none any more. It is pure, and its annotation names the type of the rows, a dataclass or a pydantic
        model. `key` names what finds a row: the entity, and fields of the events. Personal fields are
        sealed texts. When the function changes, the view is made from all events once more.
        """

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            self._add_projection(function, frozenset(events), key, store, name or function.__name__)
            return function

        return declare

    def _add_projection(
        self,
        function: Callable[..., Any],
        events: frozenset[type],
        key: str | Sequence[str],
        store: str | None,
        name: str,
    ) -> None:
        from headrace.sourcing.projections import make_projection

        self._check_new_view("projection", name)
        keys = (key,) if isinstance(key, str) else tuple(key)
        self.projections[name] = make_projection(
            function, events, self.entity_types, key=keys, name=name, store=store
        )

    def _check_new_view(self, what: str, name: str) -> None:
        _check_name(what, name)
        if name in self.views or name in self.projections:
            raise ConfigError(f"{name!r} is declared twice; rename one of them")

    @property
    def entities(self) -> "Entities":
        """The declared types of entities: `app.entities.account("a-1")` is one of them.

        Their log is that of `app.entities.connect(…)`, else HEADRACE_BOOTSTRAP, else that of a
        `headrace run` in this folder, else 127.0.0.1:9092.
        """
        if self._entities is None:
            from headrace.sourcing import Entities

            self._entities = Entities(
                self.name, self.entity_types, self.find_log, self._event_stream, self.find_keys
            )
        return self._entities

    def run(
        self,
        *,
        spark: "SparkSession | None" = None,
        data: str | Path | None = None,
        bootstrap: str | None = None,
        until_caught_up: bool = False,
        on_message: Callable[[str], None] | None = None,
        **options: Any,
    ) -> None:
        """Runs the application until it is interrupted, or has caught up; as `headrace run` does.

        For a file of its own, also under `spark-submit` (`if __name__ == "__main__": app.run()`), and for
        notebooks. The Spark is a new session on the context of `spark`, or of the session that this
        process has, or that `spark-submit` prepared; nothing of those is changed, nor are they
        stopped. Where there is none, one is started. `bootstrap` and `data` may also come from
        HEADRACE_BOOTSTRAP and HEADRACE_DATA, and who the application is towards the log from the
        variables of the [security guide](../guides/security.md). Further options are those of
        `RunOptions`. Messages are printed, unless `on_message` takes them.
        """
        entry = _entry()
        given = {"data": data, "bootstrap": bootstrap, "until_caught_up": until_caught_up, **options}
        entry.run_here(self, entry.run_options(self, given), spark, on_message or _print_message)

    def start(
        self,
        *,
        spark: "SparkSession | None" = None,
        data: str | Path | None = None,
        bootstrap: str | None = None,
        until_caught_up: bool = False,
        on_message: Callable[[str], None] | None = None,
        **options: Any,
    ) -> BackgroundRun:
        """Runs the application in the background, and returns once its queries run.

        For notebooks, whose next cell can read the views meanwhile; otherwise as `run`.
        """
        entry = _entry()
        given = {"data": data, "bootstrap": bootstrap, "until_caught_up": until_caught_up, **options}
        started: BackgroundRun = entry.run_in_background(
            self, entry.run_options(self, given), spark, on_message or _print_message
        )
        return started

    @property
    def personal(self) -> "KeyStore":
        """The keys of subjects: `seal(subject, value)` and `open(sealed)`.

        They are where HEADRACE_KEYS says, else in the application's folder in `.headrace`.
        """
        return self.find_keys()

    def find_keys(self) -> "KeyStore":
        """The keys of subjects, as far as this process can tell where they are; opened once."""
        if self._keys is None:
            from headrace.personal import key_place, open_keys

            self._keys = open_keys(key_place(Path(".headrace") / self.name))
        return self._keys

    def find_log(self) -> Connection:
        """Where the log of the entities is, as far as this process can tell."""
        from headrace.app.status import running_address

        given = os.environ.get("HEADRACE_BOOTSTRAP")
        own = None if given else running_address(Path(".headrace") / self.name / "log")
        return Connection(bootstrap_servers=given or own or Connection().bootstrap_servers)

    def _event_stream(self, kind: "EntityType") -> Stream:
        from headrace.sourcing import Topics

        topic = Topics.of(self.name, kind.name).events
        if topic in self.streams:
            return self.streams[topic]
        return self.stream(topic, schema=kind.event_schema(), event_time="at", partitions=kind.partitions)

    def capture(
        self,
        url: str,
        *,
        table: str,
        name: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> "CapturedTable":
        """A table of a database, whose changes become a topic; for `table(…, source=…)`.

        `url` is `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE?password=env:NAME`, or the same
        with `mysql` or `mariadb`; the database must be there, for the table's columns and key are read
        from it. Tables of one database are captured together, under its name or `name`. `headrace run`
        runs captures.

        `debezium+KIND://…` has one of Debezium's connectors read the database: KIND is sqlserver, oracle,
        db2, mongodb, postgresql, mysql or mariadb, and `settings` are settings of the connector.
        """
        from headrace.app.captured import with_table

        spec, captured = with_table(self.captures, url, table, name, settings)
        self.captures[spec.name] = spec
        return captured

    def follow(
        self,
        followed: "Table | CapturedTable | Function | str",
        *,
        into: "TargetSpec",
        name: str | None = None,
        format: Literal["upserts", "debezium", "changelog"] | None = None,  # noqa: A002 - as in `table`
        transactions: str | None = None,
    ) -> "Follow":
        """A derived system that has the rows of a table, a derived topic, or any keyed topic by its name.

        `into` is where: `table`, `redis`, `search`, `opensearch` or `delta` of `headrace.derived`. Each
        change takes effect there once, in order, together with the position that it reflects. A topic that
        is given by its name has values that are rows, or null where the key is gone, unless `format` says
        otherwise; `transactions` is the topic on which its source notes where transactions end.
        `headrace run` runs followers, and `headrace follow` shows and verifies them.
        """
        from headrace.app.followed import make_follow

        if callable(followed):
            followed, format = self._derived_topic(followed), format or "changelog"  # noqa: A001
        made = make_follow(followed, into, name=name, format=format, transactions=transactions)
        if made.name in self.followers:
            raise ConfigError(f"follower {made.name!r} is declared twice; give one of them another name=")
        self.followers[made.name] = made
        return made

    def _derived_topic(self, function: Function) -> str:
        """The topic with the changelog that this function declares."""
        declared = [each.topic for each in self.views.values() if each.function is function]
        if not declared or declared[0] is None:
            raise ConfigError("app.follow takes a table, the function of an @app.topic, or a topic's name")
        if isinstance(function(), Stream):
            raise ConfigError(
                f"the topic {declared[0]!r} has a record for each row of a stream: follow it by its name, "
                "if its key says which record replaces which"
            )
        return declared[0]

    def _serve(self, table: Table, name: str, store: str | None, *, has_history: bool) -> None:
        """Declares the views of a served table: its rows, and their versions if it has a history."""
        topic, kept_us = table.spec.topic, table.keep_us if has_history else None
        rows = partial(_same, table)
        rows.__doc__ = f"The table on topic {topic}."
        self._add(rows, name, key=(), store=store, history_us=kept_us)
        if has_history:
            versions = partial(_same, history_of(table))
            versions.__doc__ = f"All versions of the rows of {name}, with the time and offsets of each."
            self._add(versions, history_view(name), key=(), store=store)

    def as_table(self, view: Function | str) -> Table | Relation:
        """A view as a table, for joins and groups: its rows, which come and go as the view's do.

        `view` is its function or its name; one of a stream's rows needs a key. It is computed as part of
        each query that uses it, in the same micro-batch, so that no reader sees one without the other.
        """
        if isinstance(view, str) and view not in self.views:
            raise ConfigError(no_such("view", view, self.views))
        known = [self.views[view]] if isinstance(view, str) else self.views.values()
        declared = [each for each in known if isinstance(view, str) or each.function is view]
        result = (declared[0].function if declared else cast("Function", view))()
        key = declared[0].key if declared else ()
        if isinstance(result, Aggregation):
            return windows_of(result)
        if isinstance(result, Table) or (isinstance(result, Relation) and not result.is_stream):
            return keyed_view(result, key)
        if key and isinstance(result, Stream | Relation) and _is_by_event_time(declared[0], result):
            return keyed_view(result, key)
        raise ConfigError(
            "a view of a stream's rows is a table if it has a key and shows the last row of each by event "
            "time: declare it with key=, and its stream with event_time=; or group the rows, or window them"
        )

    @overload
    def view(self, function: Function, /) -> Function: ...
    @overload
    def view(
        self,
        /,
        *,
        key: str | Sequence[str] = ...,
        store: str | None = ...,
        name: str | None = ...,
        last: Last | None = ...,
    ) -> Callable[[Function], Function]: ...
    def view(
        self,
        function: Function | None = None,
        /,
        *,
        key: str | Sequence[str] = (),
        store: str | None = None,
        name: str | None = None,
        last: Last | None = None,
    ) -> Any:
        """Declares a view: the function returns a windowed aggregation, a stream, or a DataFrame.

        `key` names the columns that identify a row; a windowed view has its own (key
        columns and window), a stream needs none (each record is a row). Of a stream with
        a key the last row of each key is shown: by event time, or with `last="arrival"`
        by the order in which they came, as on streams that name no event time.
        """
        if last not in (None, "event_time", "arrival"):
            raise ConfigError(f'last={last!r} is neither "event_time" nor "arrival"')

        def declare(function: Function) -> Function:
            self._add(function, name or function.__name__, key=key, store=store, last=last)
            return function

        return declare(function) if function is not None else declare

    def topic(self, name: str, *, key: str | Sequence[str] = ()) -> Callable[[Function], Function]:
        """Declares a derived topic: what the function returns, written once each, in transactions.

        A stream becomes one JSON record per row, keyed by the columns of `key`; a
        windowed aggregation becomes its changelog.
        """

        def declare(function: Function) -> Function:
            self._add(function, name, key=key, store=None, topic=name)
            return function

        return declare

    def webhook(
        self,
        topic: str,
        *,
        url: str,
        secret: str,
        name: str | None = None,
        start: HookStart = "now",
        allow: str | Sequence[str] = (),
        tries: int = 20,
        first_wait: Duration = "1 second",
        longest_wait: Duration = "10 minutes",
        timeout: Duration = "15 seconds",
    ) -> Hook:
        """Posts every record of a topic to a URL, signed by the rules of Standard Webhooks.

        `secret` says where the secret is (`env:NAME` or `file:PATH`), and `url` may do
        the same. At least once, in order per partition, under an id that stays the same.
        Addresses that are not public need `allow`, networks such as `10.0.0.0/8`.
        """
        target = Webhook(url=url, secret=secret, allow=several(allow), timeout_s=seconds(timeout))
        backoff = make_backoff(tries, first_wait, longest_wait)
        return self._add_hook(make_hook(topic, target, name=name, start=start, backoff=backoff))

    def email(
        self,
        topic: str,
        *,
        to: str | Sequence[str],
        subject: str,
        smtp: str,
        sender: str = "headrace@localhost",
        template: str | None = None,
        name: str | None = None,
        start: HookStart = "now",
        tries: int = 20,
        first_wait: Duration = "1 second",
        longest_wait: Duration = "10 minutes",
        timeout: Duration = "30 seconds",
    ) -> Hook:
        """Writes a mail for every record of a topic, with the promises of `webhook`.

        `subject` and `template` (the text) may hold names of the record's fields in
        braces. `smtp` says where the server's URL is (`env:NAME`), for that has a
        password; one without may be written out: `smtp://localhost:25`.
        """
        target = Email(
            to=several(to),
            sender=sender,
            subject=subject,
            smtp=smtp,
            template=template,
            timeout_s=seconds(timeout),
        )
        backoff = make_backoff(tries, first_wait, longest_wait)
        return self._add_hook(make_hook(topic, target, name=name, start=start, backoff=backoff))

    def _add_hook(self, hook: Hook) -> Hook:
        _check_name("hook", hook.name)
        if hook.name in self.hooks:
            raise ConfigError(f"hook {hook.name!r} is declared twice; give one of them another name=")
        self.hooks[hook.name] = hook
        return hook

    def _add(
        self,
        function: Function,
        name: str,
        *,
        key: str | Sequence[str],
        store: str | None,
        topic: str | None = None,
        last: Last | None = None,
        history_us: int | None = None,
    ) -> None:
        self._check_new_view("view", name)
        keys = (key,) if isinstance(key, str) else tuple(key)
        doc = (function.__doc__ or "").strip().partition("\n")[0]
        self.views[name] = View(
            name=name,
            function=function,
            key=keys,
            store=store,
            topic=topic,
            doc=doc,
            last=last,
            history_us=history_us,
        )


def _entry() -> Any:
    """What runs applications, in the room above this one: only who asks for it needs all of that."""
    return importlib.import_module("headrace.app.run.entry")


def _print_message(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _is_by_event_time(view: View, rows: Stream | Relation) -> bool:
    """Whether a view shows the last row of each key by event time, and a record has one row at most."""
    if view.last == "arrival":
        return False
    if isinstance(rows, Stream):
        return rows.spec.event_time is not None
    return rows.one_row_each


def _same(rows: Any) -> Any:
    return rows


def _check_name(what: str, name: str) -> None:
    if not name or not all(letter.isalnum() or letter in "._-" for letter in name) or not name.isascii():
        raise ConfigError(
            f"{what} name {name!r} must be made of letters, digits, `.`, `_` and `-`, "
            "because it names topics and tables"
        )
