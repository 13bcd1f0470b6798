"""Segments: the files of a partition, found by offset or time, read and removed."""

from headrace.storage.segments.index import (
    CheckedIndex,
    SparseIndex,
    load_open,
    load_sealed,
    position_in_file,
    recorded_sealed_bytes,
)
from headrace.storage.segments.open_files import Files
from headrace.storage.segments.scan import find_next_batch, scan
from headrace.storage.segments.segment import Segment, compacted_name, plain_name, segments_in
from headrace.storage.segments.zeros_ahead import ZerosAhead, end_of_bytes

__all__ = [
    "CheckedIndex",
    "Files",
    "Segment",
    "SparseIndex",
    "ZerosAhead",
    "compacted_name",
    "end_of_bytes",
    "find_next_batch",
    "load_open",
    "load_sealed",
    "plain_name",
    "position_in_file",
    "recorded_sealed_bytes",
    "scan",
    "segments_in",
]
