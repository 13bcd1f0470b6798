"""What a checkpoint was made by.

A manifest stands beside each query's checkpoint. It names the query, whose id the
stores know, and describes everything that shaped its state. A changed application is
held against it (`headrace.app.query.checkpoint.fit`) before anything starts:

- it fits: what changed does not touch the state;
- it needs a rebuild: the state cannot be used, the log can; done on request;
- it is refused: going on, or starting over, would destroy what a newer version wrote.
"""

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.checked_json import decode_fields, encode_fields
from headrace.errors import ConfigError
from headrace.json_files import write_json
from headrace.streams import StreamSpec

__all__ = ["FORMAT", "Manifest", "SideProgress"]

# 1 kept the state of buckets in Spark's state store; that of 2 names neither its query nor the
# windows in which late rows still count.
FORMAT = 3
_FILE = "manifest.json"
_SIDE_OFFSETS = "told"  # the name of `side_offsets` in the file


@dataclass(frozen=True, slots=True)
class SideProgress:
    """Up to where, by partition, dead and late records are on their topics, and by which queries."""

    offsets: Mapping[str, int] = field(default_factory=dict)
    queries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A query's id, the number of its buckets, and what it computes.

    `begins` are the offsets by partition at which the query began. `side_offsets` are such offsets
    too: dead and late records before them are on their topics already, put there by the
    queries that this one replaces, of the very same code; `replaces` are their ids.
    `outputs` are the offsets, by topic and partition, at which its records begin in the
    topics of rows that it makes. `reads` is the query whose records it reads, if that is
    one of the same application. `slots` is how many tasks write what they make (see `slots.py`); with
    none, the driver does.
    """

    query_id: str
    buckets: int
    query: Mapping[str, Any]
    format: int = FORMAT
    side_offsets: Mapping[str, int] = field(default_factory=dict)
    replaces: tuple[str, ...] = ()
    begins: Mapping[str, int] = field(default_factory=dict)
    outputs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    reads: str = ""
    slots: int = 0

    @classmethod
    def new(
        cls,
        query: Mapping[str, Any],
        buckets: int,
        *,
        progress: "SideProgress | None" = None,
        begins: Mapping[str, int] | None = None,
        outputs: Mapping[str, Mapping[str, int]] | None = None,
        reads: str = "",
    ) -> "Manifest":
        """For a query that begins, under an id that none had before."""
        progress = progress or SideProgress()
        return cls(
            query_id=uuid.uuid4().hex,
            buckets=buckets,
            query=query,
            side_offsets=progress.offsets,
            replaces=progress.queries,
            begins=begins or {},
            outputs=outputs or {},
            reads=reads,
        )

    def spec(self, declared: StreamSpec, *, is_proof: bool = False) -> StreamSpec:
        """The stream as this query reads it; a proof has given up no record of its own."""
        begins = tuple((int(partition), offset) for partition, offset in sorted(self.begins.items()))
        queries = () if is_proof else (self.query_id, *self.replaces)
        maker = (*declared.maker[:2], self.reads)
        return replace(declared, letters_of=queries, begins=begins, maker=maker)

    def reads_records_of(self, maker: "Manifest") -> bool:
        """Whether the rows that it reads are this query's; older versions noted neither side's build."""
        return maker.query_id in self.reads.split(",") or not (self.reads or maker.outputs)

    @classmethod
    def read(cls, folder: Path) -> "Manifest | None":
        """The folder's manifest, if there is one.

        Raises ConfigError if a newer version wrote it, or it is damaged.
        """
        try:
            data = (folder / _FILE).read_bytes()
        except FileNotFoundError:
            return None
        return cls.decode(data, folder)

    @classmethod
    def decode(cls, data: bytes, folder: Path | str) -> "Manifest":
        """The manifest of a folder from its file's bytes; raises as `read` does."""
        try:
            return cls._from_json(decode_fields(data, None).fields, folder)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise ConfigError(
                f"{folder}/{_FILE} is damaged ({why}); restore it from a copy, or remove the folder {folder} "
                "to rebuild its views from the log"
            ) from None

    @classmethod
    def _from_json(cls, fields: dict[str, Any], folder: Path | str) -> "Manifest":
        if fields["format"] > FORMAT:
            raise ConfigError(
                f"{folder} was written by a newer version (format {fields['format']}, known is {FORMAT}): "
                "use that version, or remove the folder to rebuild its views from the log"
            )
        kept = {**fields, "side_offsets": fields.get(_SIDE_OFFSETS, {})}
        kept.pop(_SIDE_OFFSETS, None)
        manifest = cls(**{**kept, "replaces": tuple(fields.get("replaces", ()))})
        for name in ("query", "side_offsets", "begins", "outputs"):
            if not isinstance(getattr(manifest, name), dict):
                raise ValueError(f"its {name} are no fields")
        return manifest

    def write(self, folder: Path) -> None:
        """Writes it durably, whole or not at all."""
        write_json(folder / _FILE, self._fields())

    def encode(self) -> bytes:
        """The bytes of its file."""
        return encode_fields(self._fields())

    def _fields(self) -> dict[str, Any]:
        fields = asdict(self)
        return {**fields, _SIDE_OFFSETS: fields.pop("side_offsets")}
