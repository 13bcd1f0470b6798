"""Hooks as they are declared: the topic, the target, and the retries. Values; no I/O.

They reach the deliverer in `app.json`, and contain no secrets, only references to them
(`headrace.secret_references`).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

from headrace.errors import ConfigError
from headrace.hooks.addresses import is_permitted, parse_networks
from headrace.hooks.backoff import Backoff
from headrace.secret_references import is_reference

__all__ = ["Email", "Hook", "Webhook", "check_url", "hook_dead_topic", "hook_group", "state_topic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A URL to post to. `url` may be a reference; `secret` must be one; `allow` are networks."""

    url: str
    secret: str
    allow: tuple[str, ...] = ()
    timeout_s: float = 15.0

    def __post_init__(self) -> None:
        networks = parse_networks(self.allow)
        if not is_reference(self.secret):
            raise ConfigError(
                "secret= must be a reference, such as env:ORDERS_SECRET; a secret itself does not belong in "
                "an application's file"
            )
        if not self.timeout_s > 0:
            raise ConfigError("timeout= must be positive")
        if not is_reference(self.url):
            host = check_url(self.url)
            if _is_address(host) and not is_permitted(host, networks):
                raise ConfigError(f"{host} is not a public address; to permit it, use allow=[{host!r}]")

    @property
    def shown(self) -> str:
        """The URL for people, without its query, which may contain a token."""
        return self.url if is_reference(self.url) else self.url.partition("?")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Email:
    """People to send email to. `smtp` is a reference, or the URL of a mail server without a password."""

    to: tuple[str, ...]
    sender: str
    subject: str
    smtp: str
    template: str | None = None
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if not self.to:
            raise ConfigError("to= is empty; give at least one address")
        for address in (*self.to, self.sender):
            _check_mailbox(address)
        if any(not letter.isprintable() for letter in self.subject):
            raise ConfigError("subject= must be one line of printable characters")
        if not is_reference(self.smtp) and "@" in self.smtp:
            raise ConfigError(
                "smtp= contains a user or a password; put the URL into an environment variable and write "
                'smtp="env:NAME"'
            )

    @property
    def shown(self) -> str:
        """The recipients."""
        return ", ".join(self.to)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """Every record of `topic` to `target`, from now on or, with start="earliest", from its beginning."""

    name: str
    topic: str
    target: Webhook | Email
    start: str = "now"
    backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        if self.start not in ("now", "earliest"):
            raise ConfigError(f'start={self.start!r} is neither "now" nor "earliest"')

    @property
    def kind(self) -> str:
        """webhook or email."""
        return "webhook" if isinstance(self.target, Webhook) else "email"

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `from_json`; `shown` is for people."""
        return {"kind": self.kind, "shown": self.target.shown, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Hook":
        """The hook that `to_json` was called on."""
        target = dict(data["target"])
        made: Webhook | Email
        if data["kind"] == "webhook":
            made = Webhook(**{**target, "allow": tuple(target["allow"])})
        else:
            made = Email(**{**target, "to": tuple(target["to"])})
        return cls(
            name=data["name"],
            topic=data["topic"],
            target=made,
            start=data["start"],
            backoff=Backoff(**data["backoff"]),
        )


def state_topic(app: str) -> str:
    """The compacted topic with the state of an application's hooks."""
    return f"{app}.hooks"


def hook_dead_topic(app: str) -> str:
    """The topic for records that hooks gave up."""
    return f"{app}.hooks.dead"


def hook_group(app: str, hook: str) -> str:
    """The consumer group that shows the progress of a hook."""
    return f"{app}.hooks.{hook}"


def check_url(url: str) -> str:
    """The host of a URL that a webhook may have; raises ConfigError, without the URL's query."""
    shown = url.partition("?")[0] if "@" not in url else "the URL"
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError("a webhook's URL must be made of printable ASCII characters without spaces")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"{shown} is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(f"{shown} is not the URL of a webhook; write https://host/path")
    if parts.username is not None or parts.fragment:
        raise ConfigError("a webhook's URL must have neither a user or password nor a fragment")
    return host


def _is_address(host: str) -> bool:
    return ":" in host or all(part.isdecimal() for part in host.split("."))


def _check_mailbox(address: str) -> None:
    local, at, domain = address.rpartition("@")
    if not (address.isascii() and address.isprintable() and at and local and domain) or any(
        letter in ' ,;<>"()[]\\' for letter in address
    ):
        raise ConfigError(f"{address!r} is not an email address; write it bare, such as ops@example.com")
