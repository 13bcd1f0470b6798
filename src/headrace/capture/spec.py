"""What a capture is: a database, its tables, and the name under which they are on the log. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from headrace.errors import ConfigError

__all__ = ["CaptureSpec", "parse_spec"]

_SCHEMES = ("sqlite", "postgresql", "postgres", "mysql", "mariadb")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSpec:
    """A capture as it is declared; may be stored, logged and shown, for it holds no password.

    `url` is `sqlite:///FILE` (four slashes for an absolute path) or
    `postgresql://USER@HOST/DATABASE?password=env:NAME`, or the same with `mysql` or `mariadb`.
    Without `tables`, all of the database. `outbox` names tables whose rows are events. `load_workers`
    connections read the rows of a first load, where the source can do that; 0: chunks are read.

    `debezium+KIND://…` is a database that Debezium's connector reads; only such a capture has `settings`,
    which are the connector's.
    """

    name: str
    url: str
    tables: tuple[str, ...] = ()
    outbox: tuple[str, ...] = ()
    partitions: int = 4
    chunk_rows: int = 10_000
    load_workers: int = 4
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name or not all(each.isalnum() or each in "_-" for each in self.name):
            raise ConfigError(
                f"capture name {self.name!r} must be made of letters, digits, `_` and `-`: it names topics"
            )
        if self.partitions < 1 or self.chunk_rows < 1:
            raise ConfigError(f"capture {self.name}: partitions and chunk_rows are 1 or more")
        if self.load_workers < 0:
            raise ConfigError(f"capture {self.name}: load_workers is 0 or more")
        if self.is_debezium:
            self._check_debezium()
            return
        if self.settings:
            raise ConfigError(
                f"capture {self.name}: settings are those of Debezium's connectors, of debezium+… URLs only"
            )
        parts = urlsplit(self.url)
        if parts.scheme not in _SCHEMES:
            raise ConfigError(
                f"capture {self.name}: a URL begins with sqlite://, postgresql://, mysql:// or "
                f"mariadb://, or with debezium+ for what Debezium reads, not with {parts.scheme!r}"
            )
        if parts.password is not None:
            raise ConfigError(
                f"capture {self.name}: a password does not belong in a URL; say where it is: "
                "postgresql://user@host/database?password=env:PGPASSWORD"
            )

    @property
    def is_debezium(self) -> bool:
        """Whether a connector of Debezium reads it, not a reader of ours."""
        return self.url.startswith("debezium+")

    def _check_debezium(self) -> None:
        from headrace.capture.connect import DebeziumAddress, check_settings

        address = DebeziumAddress.parse(self.url)
        check_settings(address.kind, self.settings)
        if self.outbox:
            raise ConfigError(
                f"capture {self.name}: Debezium's connectors do not route outbox tables here; capture the "
                "outbox by a postgresql://, mysql://, mariadb:// or sqlite:// URL, or as any other table"
            )

    def merged(self, other: "CaptureSpec | None") -> "CaptureSpec":
        """This capture, with the additional tables of another declaration of it."""
        if other is None or other.url != self.url or not (self.tables and other.tables):
            return self
        tables = tuple(dict.fromkeys([*other.tables, *self.tables]))
        return replace(self, tables=tables, outbox=tuple(dict.fromkeys([*other.outbox, *self.outbox])))

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "settings": dict(self.settings)}


def parse_spec(said: Mapping[str, Any]) -> CaptureSpec:
    """The capture that `to_json` described."""
    lists = {"tables": tuple(said["tables"]), "outbox": tuple(said.get("outbox", ()))}
    return CaptureSpec(**{**said, **lists})
