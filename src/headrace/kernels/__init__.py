"""Loops over bytes, compiled: checks of batches, where records lie in them, JSON that looks alike.

Python is slow, and numpy does one thing to many places at once, where here each place depends
on what was found at the one before. The files of C have the loops, a build of the package
compiles them (`hatch_build.py`), and six modules call them: `batches` for the log, with bytes,
`requests` for the broker, with addresses, `columnar` for readers, with numpy's arrays, `rows` and
`logged` for captures, and `produce` for what writes to the log; the broker imports no numpy. They run without
Python's lock, unless they are over in a microsecond. Two of them also read and write:
`send_checked`, by which a batch on its way from a file to a socket is checked between the two,
and `commit_alone`, by which one goes from a request to the disk and to its reader.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.kernels.batches import ENTRY_FIELDS as ENTRY_FIELDS
    from headrace.kernels.batches import PRODUCER_FIELDS as PRODUCER_FIELDS
    from headrace.kernels.batches import WRONG_SUM as WRONG_SUM
    from headrace.kernels.batches import Check as Check
    from headrace.kernels.batches import SendDescriptors as SendDescriptors
    from headrace.kernels.batches import SendOutcome as SendOutcome
    from headrace.kernels.batches import SendProgress as SendProgress
    from headrace.kernels.batches import SendWindow as SendWindow
    from headrace.kernels.batches import Walk as Walk
    from headrace.kernels.batches import check_bytes as check_bytes
    from headrace.kernels.batches import send_checked as send_checked
    from headrace.kernels.batches import walk_batches as walk_batches
    from headrace.kernels.columnar import PARTS as PARTS
    from headrace.kernels.columnar import JsonCell as JsonCell
    from headrace.kernels.columnar import JsonContents as JsonContents
    from headrace.kernels.columnar import JsonKind as JsonKind
    from headrace.kernels.columnar import gather as gather
    from headrace.kernels.columnar import lay_out_batches as lay_out_batches
    from headrace.kernels.columnar import lay_out_headers as lay_out_headers
    from headrace.kernels.columnar import lay_out_records as lay_out_records
    from headrace.kernels.columnar import number_texts as number_texts
    from headrace.kernels.columnar import read_objects as read_objects
    from headrace.kernels.logged import LogColumnLayout as LogColumnLayout
    from headrace.kernels.logged import LogEvent as LogEvent
    from headrace.kernels.logged import LogKind as LogKind
    from headrace.kernels.logged import LogTable as LogTable
    from headrace.kernels.logged import TextKind as TextKind
    from headrace.kernels.logged import encode_logged as encode_logged
    from headrace.kernels.logged import encode_texts as encode_texts
    from headrace.kernels.produce import NoRoom as NoRoom
    from headrace.kernels.produce import TopicBatches as TopicBatches
    from headrace.kernels.produce import append_records as append_records
    from headrace.kernels.produce import hash_key as hash_key
    from headrace.kernels.requests import ROOM_BYTES as ROOM_BYTES
    from headrace.kernels.requests import STANDING_FIELDS as STANDING_FIELDS
    from headrace.kernels.requests import Came as Came
    from headrace.kernels.requests import LaneCall as LaneCall
    from headrace.kernels.requests import ProducedBatch as ProducedBatch
    from headrace.kernels.requests import RepeatedFetch as RepeatedFetch
    from headrace.kernels.requests import RepeatedProduce as RepeatedProduce
    from headrace.kernels.rows import RECORD_NUMBERS as RECORD_NUMBERS
    from headrace.kernels.rows import Encoded as Encoded
    from headrace.kernels.rows import FoundMessages as FoundMessages
    from headrace.kernels.rows import RowColumnLayout as RowColumnLayout
    from headrace.kernels.rows import RowEncoder as RowEncoder
    from headrace.kernels.rows import RowTable as RowTable
    from headrace.kernels.rows import RowTables as RowTables
    from headrace.kernels.rows import RowTexts as RowTexts
    from headrace.kernels.rows import Stop as Stop
    from headrace.kernels.rows import UsedTable as UsedTable
    from headrace.kernels.rows import find_answers as find_answers
    from headrace.kernels.shared_library import address_of as address_of
    from headrace.kernels.shared_library import library as library

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "columnar": "JsonCell JsonContents JsonKind PARTS gather lay_out_batches lay_out_headers "
        "lay_out_records number_texts read_objects",
        "batches": "ENTRY_FIELDS PRODUCER_FIELDS WRONG_SUM Check SendDescriptors SendOutcome SendProgress "
        "SendWindow Walk check_bytes send_checked walk_batches",
        "shared_library": "address_of library",
        "rows": "RECORD_NUMBERS Encoded FoundMessages RowColumnLayout RowEncoder RowTable RowTables RowTexts "
        "Stop UsedTable find_answers",
        "logged": "LogColumnLayout LogEvent LogKind LogTable TextKind encode_logged encode_texts",
        "produce": "NoRoom TopicBatches append_records hash_key",
        "requests": "Came LaneCall ProducedBatch RepeatedFetch RepeatedProduce ROOM_BYTES STANDING_FIELDS",
    },
)
