"""Derived systems that never drift: tables, caches and indexes that follow one topic of the log.

A *follower* reads a keyed topic (a captured table, a view's changelog, any topic of upserts) and
writes its rows to a *target*, in order, each record once: rows and the position that they reflect
change in one transaction of the target. No other state is kept, so a follower may be killed at any point;
a target that lost its position is corrected from the log, and `verify_follow` compares
the two row by row. `verify_capture` compares a captured database with its topics in the same way.

`spec` declares followers, `run` runs one, `host` runs all that are declared on the log;
`target` says what a new target has to promise. No Spark. May import `capture`, `views` and below.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.derived.captured import CaptureVerification as CaptureVerification
    from headrace.derived.captured import TableVerification as TableVerification
    from headrace.derived.captured import verify_capture as verify_capture
    from headrace.derived.catalog import FOLLOWERS_TOPIC as FOLLOWERS_TOPIC
    from headrace.derived.catalog import FollowCatalog as FollowCatalog
    from headrace.derived.catalog import FollowEntry as FollowEntry
    from headrace.derived.host import FollowHost as FollowHost
    from headrace.derived.open import open_target as open_target
    from headrace.derived.run import FollowRun as FollowRun
    from headrace.derived.spec import Follow as Follow
    from headrace.derived.spec import Format as Format
    from headrace.derived.spec import TargetSpec as TargetSpec
    from headrace.derived.spec import delta as delta
    from headrace.derived.spec import opensearch as opensearch
    from headrace.derived.spec import redis as redis
    from headrace.derived.spec import search as search
    from headrace.derived.spec import table as table
    from headrace.derived.status import FollowStatus as FollowStatus
    from headrace.derived.target import Target as Target
    from headrace.derived.verify import Verification as Verification
    from headrace.derived.verify import verify_follow as verify_follow

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "catalog": "FOLLOWERS_TOPIC FollowCatalog FollowEntry",
        "host": "FollowHost",
        "open": "open_target",
        "run": "FollowRun",
        "spec": "Follow Format TargetSpec delta opensearch redis search table",
        "status": "FollowStatus",
        "target": "Target",
        "verify": "Verification verify_follow",
        "captured": "CaptureVerification TableVerification verify_capture",
    },
)
