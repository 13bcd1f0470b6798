"""Compaction: the newest record of every key stays, offsets never change.

Theory of operation. Sealed segments below the last stable offset are read twice.
The first pass goes over what is dirty, that is, not yet compacted, and notes the
newest offset of each key in a table of fixed size; when that is full, the run
reaches only so far, and the next one goes on from there (`clean-end`). The second
pass copies what stays, from the log start on. Neighbours are merged into files of
at most `segment.bytes`. A new file is written beside the old ones, synced, and put
in force by one rename; its name says which range it stands for, so that a crash at
any moment leaves either the old files or the new one in force, and the others are
removed at the next open. Readers in the midst of an old file keep it.

A tombstone first gets a delete horizon, written into its batch as Kafka does;
once that has passed, the next run drops it. So does a marker, once no batch of its
transaction is left. Records without a key stay, and so does the newest sealed
record, so that a reader can always walk up to the end. The records of aborted
transactions go. A batch from which a producer's sequence goes on stays, if need be
without records.

numpy is imported by the first run, not before.
"""

from headrace.storage.compaction.run import Compaction, CompactionLimits, Stopped

__all__ = ["Compaction", "CompactionLimits", "Stopped"]
