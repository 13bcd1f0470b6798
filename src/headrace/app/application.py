"""The application a user writes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, overload

from headrace.app.alerts import Thresholds
from headrace.app.hooks import Start, make_backoff, make_hook, seconds, several
from headrace.app.shares import parse_share
from headrace.app.stream import Stream
from headrace.direct.hook import Email, Hook, Webhook
from headrace.errors import ConfigError
from headrace.streams.operators import microseconds as duration_us

if TYPE_CHECKING:
    pass

__all__ = ["App", "View"]

Duration = str | timedelta
Result = "Aggregation | Stream | DataFrame"
Function = Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A named result: the function that declares it, and where it is kept."""

    name: str
    function: Function
    key: tuple[str, ...]
    store: str | None
    topic: str | None = None
    doc: str = ""


@dataclass(slots=True)
class App:
    """Streams, and the views and topics made from them.

    `store` is where views are kept unless they say otherwise: a URL such as
    `sqlite:///shop.db` or `postgresql://…`; without one, SQLite in the data folder.
    """

    name: str
    store: str | None = None
    streams: dict[str, Stream] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    hooks: dict[str, Hook] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_name("application", self.name)

    def stream(
        self,
        topic: str,
        *,
        schema: str,
        event_time: str | None = None,
        sent_at: str | None = None,
        lateness: Duration = "10 seconds",
        late: Literal["drop", "correct"] = "drop",
        correct_for: Duration = "1 hour",
        decoder: Literal["json", "raw"] = "json",
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

        Event time is the column `event_time`, or the record's own time without one;
        with `sent_at`, the device's clock is corrected by what the log says. Results
        wait `lateness` for stragglers; later ones are dropped and kept in the late
        topic, or, with `late="correct"`, correct what was published for `correct_for`.
        A topic that is missing is created, with that many partitions. There is an alert
        while more than these shares of records are late or cannot be read, or the
        views are further behind than that; None asks for none.
        """
        from headrace.streams.spec import StreamSpec

        if topic in self.streams:
            raise ConfigError(f"stream {topic!r} is declared twice; keep one and use it for both")
        if late not in ("drop", "correct"):
            raise ConfigError(f'late={late!r} is neither "drop" nor "correct"')
        spec = StreamSpec(
            topic=topic,
            schema=schema,
            decoder=decoder,
            event_time=event_time,
            sent_at=sent_at,
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

    @overload
    def view(self, function: Function, /) -> Function: ...
    @overload
    def view(
        self, /, *, key: str | Sequence[str] = ..., store: str | None = ..., name: str | None = ...
    ) -> Callable[[Function], Function]: ...
    def view(
        self,
        function: Function | None = None,
        /,
        *,
        key: str | Sequence[str] = (),
        store: str | None = None,
        name: str | None = None,
    ) -> Any:
        """Declares a view: the function returns a windowed aggregation, a stream, or a DataFrame.

        `key` names the columns that identify a row; a windowed view has its own (key
        columns and window), a stream needs none (each record is a row).
        """

        def declare(function: Function) -> Function:
            self._add(function, name or function.__name__, key=key, store=store)
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
        start: Start = "now",
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
        start: Start = "now",
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
    ) -> None:
        _check_name("view", name)
        if name in self.views:
            raise ConfigError(f"{name!r} is declared twice; rename one of them")
        keys = (key,) if isinstance(key, str) else tuple(key)
        doc = (function.__doc__ or "").strip().partition("\n")[0]
        self.views[name] = View(name=name, function=function, key=keys, store=store, topic=topic, doc=doc)


def _check_name(what: str, name: str) -> None:
    if not name or not all(letter.isalnum() or letter in "._-" for letter in name) or not name.isascii():
        raise ConfigError(
            f"{what} name {name!r} must be made of letters, digits, `.`, `_` and `-`, "
            "for it names topics and tables"
        )
