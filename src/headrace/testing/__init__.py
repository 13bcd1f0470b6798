"""For tests of applications and of Headrace itself.

`run_app` runs an application on records in memory, with a clock that only the test
moves. `headrace.testing.broker` runs brokers, as processes or in a thread;
`headrace.testing.kafka` runs a real Kafka to compare with;
`headrace.testing.postgres` runs a real PostgreSQL from a wheel, and
`headrace.testing.postgres_process` and `headrace.testing.mysql_process` any that is here, on a port and to be
stopped hard;
`headrace.testing.redis` runs a real Redis;
`headrace.testing.disk` has disks that fail. Nothing in the other rooms imports
this one.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.testing.application import AppRun, SideRecord, run_app

__all__ = ["AppRun", "SideRecord", "run_app"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'headrace.testing' has no attribute {name!r}")
    from headrace.testing import application

    return getattr(application, name)
