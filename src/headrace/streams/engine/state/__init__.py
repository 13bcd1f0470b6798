"""The durable state of a query: each bucket's log, in files or in an object store.

`log` is what is durable of one bucket and the copy that a worker holds, `entries` its entries as bytes;
`files` and `objects` are the two places where logs are kept, `checkpoint_records` what a batch is made
from. `copy` brings a log elsewhere, `rescaling` spreads the state over another number of buckets, `report`
says what it takes.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.streams.engine.state.checkpoint_records import MANIFEST as MANIFEST
    from headrace.streams.engine.state.checkpoint_records import CheckpointRecord as CheckpointRecord
    from headrace.streams.engine.state.checkpoint_records import CheckpointRecords as CheckpointRecords
    from headrace.streams.engine.state.checkpoint_records import StateAtUrl as StateAtUrl
    from headrace.streams.engine.state.checkpoint_records import newest_record as newest_record
    from headrace.streams.engine.state.checkpoint_records import put_record as put_record
    from headrace.streams.engine.state.checkpoint_records import record_at_rest as record_at_rest
    from headrace.streams.engine.state.checkpoint_records import recorded as recorded
    from headrace.streams.engine.state.checkpoint_records import restore as restore
    from headrace.streams.engine.state.copy import copy_bucket as copy_bucket
    from headrace.streams.engine.state.files import BucketFiles as BucketFiles
    from headrace.streams.engine.state.files import StateInFolders as StateInFolders
    from headrace.streams.engine.state.log import BucketCopies as BucketCopies
    from headrace.streams.engine.state.log import BucketCopy as BucketCopy
    from headrace.streams.engine.state.log import BucketLog as BucketLog
    from headrace.streams.engine.state.log import BucketStates as BucketStates
    from headrace.streams.engine.state.log import StoredState as StoredState
    from headrace.streams.engine.state.log import append as append
    from headrace.streams.engine.state.log import load as load
    from headrace.streams.engine.state.objects import BucketObjects as BucketObjects
    from headrace.streams.engine.state.objects import bucket_name as bucket_name
    from headrace.streams.engine.state.objects import read_receipts as read_receipts
    from headrace.streams.engine.state.report import BucketState as BucketState
    from headrace.streams.engine.state.report import HeldState as HeldState
    from headrace.streams.engine.state.report import InputRows as InputRows
    from headrace.streams.engine.state.report import read_buckets as read_buckets
    from headrace.streams.engine.state.rescaling import Keys as Keys
    from headrace.streams.engine.state.rescaling import rescale as rescale

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "checkpoint_records": (
            "CheckpointRecord CheckpointRecords MANIFEST StateAtUrl newest_record put_record record_at_rest "
            "recorded restore"
        ),
        "copy": "copy_bucket",
        "files": "BucketFiles StateInFolders",
        "log": "BucketCopies BucketCopy BucketLog BucketStates StoredState append load",
        "objects": "BucketObjects bucket_name read_receipts",
        "report": "BucketState HeldState InputRows read_buckets",
        "rescaling": "Keys rescale",
    },
)
