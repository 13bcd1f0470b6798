"""Records that were sent again, and which of them a stream has read before. Pure.

A dead letter that is redriven becomes a new record at the end of its partition, the same
to the last bit; the old one stays where it was. Its headers say where that is, and who
had given it up (`headrace.client.deadletters.letters`). One of the two counts:

- the new one, if the query that reads it had itself given up the old one: what could not
  be read then can be read now;
- the old one otherwise. The query has read it, or reads it, with the very code that finds
  the new one readable, so it was or is a row: the new one is a repetition of it. So it is
  after a rebuild, and where a queue or a webhook gave up what the stream could read.

If the query began behind the old record, it never met it, and the new one counts.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from headrace.records import REDRIVEN_OWNER, REDRIVEN_SOURCE, parse_source
from headrace.streams.spec import StreamSpec

__all__ = ["repetitions"]


def repetitions(headers: pa.Array, spec: StreamSpec, partition: int) -> Iterator[int]:
    """The records of a partition, by their numbers, that repeat one which this query counts.

    Costs nothing where no record has a header.
    """
    items = headers.flatten()
    if not len(items):
        return
    sources = _values(headers, items, REDRIVEN_SOURCE)
    if not sources:
        return
    owners = _values(headers, items, REDRIVEN_OWNER)
    begin = dict(spec.begins).get(partition, 0)
    for row, text in sources.items():
        place = parse_source(text)
        if place is None or place[:2] != (spec.topic, partition) or place[2] < begin:
            continue
        if owners.get(row, b"").decode(errors="replace") not in spec.letters_of:
            yield row


def _values(headers: pa.Array, items: pa.Array, name: str) -> Mapping[int, bytes]:
    """The value of a header by the record that has it; of several, the last."""
    at = pc.indices_nonzero(pc.equal(items.field("key"), name))
    if not len(at):
        return {}
    rows = pc.list_parent_indices(headers).take(at).to_pylist()
    values = items.field("value").take(at).to_pylist()
    return {row: value or b"" for row, value in zip(rows, values, strict=True)}
