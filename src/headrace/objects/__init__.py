"""Whole objects by URL: what an application keeps where all of its machines reach it.

`open_objects` opens a folder of an object store, of HDFS or of a local disk, through `pyarrow.fs`.
An object is put whole or not at all, and is read as it was put as soon as that has returned.
A ground-floor room: it knows nothing of what the objects hold.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.objects.arrow_objects import ArrowObjects as ArrowObjects
    from headrace.objects.arrow_objects import open_objects as open_objects
    from headrace.objects.memory_objects import MemoryObjects as MemoryObjects
    from headrace.objects.objects import Objects as Objects
    from headrace.objects.probe import check_probe as check_probe
    from headrace.objects.probe import leave_probe as leave_probe
    from headrace.objects.probe import remove_probe as remove_probe
    from headrace.objects.urls import SCHEMES as SCHEMES
    from headrace.objects.urls import is_url as is_url
    from headrace.objects.urls import joined as joined
    from headrace.objects.urls import require_supported as require_supported

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "arrow_objects": "ArrowObjects open_objects",
        "memory_objects": "MemoryObjects",
        "objects": "Objects",
        "probe": "check_probe leave_probe remove_probe",
        "urls": "SCHEMES is_url joined require_supported",
    },
)
