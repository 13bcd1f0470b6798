"""One Spark query for all views of a stream, column by column.

    feed ──> [projection ──> pack]  ──shuffle by bucket──>  stage ──> the sink of a batch

The feed packs rows into a few fat messages, in the source itself where nothing
stands between; with user columns in between, Spark's own projection computes them
and the packing happens behind it. Keys are spread over a fixed number of buckets.
The stage keeps one operator state per bucket and view, in files beside Spark's
checkpoint or in an object store, and turns partial results into changes. Everything that
crosses a process border is an Arrow stream or JSON.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.streams.engine.batch_gate import AtRestError as AtRestError
    from headrace.streams.engine.batch_gate import BatchGate as BatchGate
    from headrace.streams.engine.bucket_step import BucketBatch as BucketBatch
    from headrace.streams.engine.bucket_step import advance_bucket as advance_bucket
    from headrace.streams.engine.bucket_step import batch_summary as batch_summary
    from headrace.streams.engine.heartbeats import heartbeat_of as heartbeat_of
    from headrace.streams.engine.messages import ALL_VIEWS as ALL_VIEWS
    from headrace.streams.engine.messages import BlobKind as BlobKind
    from headrace.streams.engine.messages import Message as Message
    from headrace.streams.engine.messages import Outgoing as Outgoing
    from headrace.streams.engine.messages import decode_json as decode_json
    from headrace.streams.engine.messages import decode_table as decode_table
    from headrace.streams.engine.messages import encode_json as encode_json
    from headrace.streams.engine.messages import read_messages as read_messages
    from headrace.streams.engine.messages import to_batch as to_batch
    from headrace.streams.engine.packers import ASIDE as ASIDE
    from headrace.streams.engine.packers import FusedPacker as FusedPacker
    from headrace.streams.engine.packers import RowPacker as RowPacker
    from headrace.streams.engine.packers import pack_projected as pack_projected
    from headrace.streams.engine.plan import ROW_STAMPS as ROW_STAMPS
    from headrace.streams.engine.plan import StreamPlan as StreamPlan
    from headrace.streams.engine.plan import ViewPlan as ViewPlan
    from headrace.streams.engine.projection import Select as Select
    from headrace.streams.engine.projection import Step as Step
    from headrace.streams.engine.projection import Where as Where
    from headrace.streams.engine.projection import WithColumns as WithColumns
    from headrace.streams.engine.projection import columns_after as columns_after
    from headrace.streams.engine.projection import plain_step as plain_step
    from headrace.streams.engine.projection import project as project
    from headrace.streams.engine.projection import projected_fields as projected_fields
    from headrace.streams.engine.query import StreamQuery as StreamQuery
    from headrace.streams.engine.query import start_stream as start_stream
    from headrace.streams.engine.replay import replayed_results as replayed_results
    from headrace.streams.engine.replay import replayed_rows as replayed_rows
    from headrace.streams.engine.spill import SpillFiles as SpillFiles
    from headrace.streams.engine.state import MANIFEST as MANIFEST
    from headrace.streams.engine.state import BucketCopy as BucketCopy
    from headrace.streams.engine.state import BucketFiles as BucketFiles
    from headrace.streams.engine.state import BucketLog as BucketLog
    from headrace.streams.engine.state import BucketObjects as BucketObjects
    from headrace.streams.engine.state import BucketState as BucketState
    from headrace.streams.engine.state import CheckpointRecord as CheckpointRecord
    from headrace.streams.engine.state import CheckpointRecords as CheckpointRecords
    from headrace.streams.engine.state import HeldState as HeldState
    from headrace.streams.engine.state import InputRows as InputRows
    from headrace.streams.engine.state import Keys as Keys
    from headrace.streams.engine.state import StateAtUrl as StateAtUrl
    from headrace.streams.engine.state import StoredState as StoredState
    from headrace.streams.engine.state import bucket_name as bucket_name
    from headrace.streams.engine.state import copy_bucket as copy_bucket
    from headrace.streams.engine.state import newest_record as newest_record
    from headrace.streams.engine.state import put_record as put_record
    from headrace.streams.engine.state import read_buckets as read_buckets
    from headrace.streams.engine.state import read_receipts as read_receipts
    from headrace.streams.engine.state import record_at_rest as record_at_rest
    from headrace.streams.engine.state import rescale as rescale
    from headrace.streams.engine.state import restore as restore
    from headrace.streams.engine.step_description import describe_step as describe_step
    from headrace.streams.engine.step_description import step_in_words as step_in_words

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "batch_gate": "AtRestError BatchGate",
        "bucket_step": "BucketBatch advance_bucket batch_summary",
        "heartbeats": "heartbeat_of",
        "messages": (
            "ALL_VIEWS BlobKind Message Outgoing decode_json decode_table encode_json read_messages to_batch"
        ),
        "packers": "ASIDE FusedPacker RowPacker pack_projected",
        "plan": "ROW_STAMPS StreamPlan ViewPlan",
        "projection": "Select Step Where WithColumns columns_after plain_step project projected_fields",
        "query": "StreamQuery start_stream",
        "replay": "replayed_results replayed_rows",
        "spill": "SpillFiles",
        "state": (
            "BucketCopy BucketFiles BucketLog BucketObjects BucketState CheckpointRecord CheckpointRecords "
            "HeldState InputRows Keys MANIFEST StateAtUrl StoredState bucket_name copy_bucket newest_record "
            "put_record read_buckets read_receipts record_at_rest rescale restore"
        ),
        "step_description": "describe_step step_in_words",
    },
)
