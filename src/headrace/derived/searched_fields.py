"""Whether a captured table still has the fields that a full-text index is over.

An index over a field that was renamed would be empty, and searches would find nothing without anybody
noticing. A table or a cache has whatever fields rows have; only what names fields itself can miss one.
"""

import orjson

from headrace.client import EARLIEST, LATEST, Connection, RawFetcher
from headrace.derived.spec import Follow
from headrace.errors import RetriableError
from headrace.records import decode_columns

__all__ = ["SearchedFields"]

_CUTS, _SCHEMAS = ".transaction", ".schema"  # of the topics of a capture


class SearchedFields:
    """Reads the schema topic of the capture whose table is followed; for one thread."""

    def __init__(self, follow: Follow, connection: Connection) -> None:
        self._follow = follow
        self._connection = connection
        self._wanted = list(follow.into.options.get("fields", ()))
        is_captured = follow.format == "debezium" and follow.transactions.endswith(_CUTS)
        self._topic = follow.transactions.removesuffix(_CUTS) + _SCHEMAS if is_captured else ""
        self._next = 0
        self._missing: list[str] = []

    def require(self) -> None:
        """RetriableError if the table, as it was last described, lacks one: rows wait until it has all."""
        if not (self._wanted and self._topic):
            return
        self._read()
        if self._missing:
            raise RetriableError(
                f"the table of {self._follow.topic} has no column {', '.join(self._missing)}, over which the "
                f"index {self._follow.into.options['index']} is: give the column its name back, or "
                "name others in fields= and start the follower again, which then indexes its rows by those"
            )

    def _read(self) -> None:
        with RawFetcher(self._connection) as fetcher:
            if self._topic not in fetcher.layouts([self._topic]):
                return
            first, end = fetcher.offsets(self._topic, EARLIEST)[0], fetcher.offsets(self._topic, LATEST)[0]
            for run in fetcher.fetch(self._topic, 0, max(self._next, first), end):
                found = decode_columns(run, columns=("key", "value"))
                for key, value in zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True):
                    if value is not None and self._is_followed((key or b"").decode()):
                        has = {each["name"] for each in orjson.loads(value)["columns"]}
                        self._missing = [each for each in self._wanted if each not in has]
            self._next = end

    def _is_followed(self, table: str) -> bool:
        from headrace.capture import table_topic

        return table_topic(self._topic.removesuffix(_SCHEMAS), table) == self._follow.topic
