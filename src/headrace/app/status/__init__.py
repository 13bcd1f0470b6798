"""What an application tells other processes, in its data folder: what it is, its state, its alerts.

The driver writes, the console and the command line read; no Spark is needed for either. The
lowest room of `app`: plans, queries and runs build on it. May import `client` and below, and from
`streams` what reads state.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.app.status.alerts import Alert as Alert
    from headrace.app.status.alerts import Thresholds as Thresholds
    from headrace.app.status.batch_report import BatchReport as BatchReport
    from headrace.app.status.description import AppDescription as AppDescription
    from headrace.app.status.description import PipelineNode as PipelineNode
    from headrace.app.status.description import QueryDescription as QueryDescription
    from headrace.app.status.description import StateDescription as StateDescription
    from headrace.app.status.description import ViewDescription as ViewDescription
    from headrace.app.status.description import read_description as read_description
    from headrace.app.status.lock import is_running as is_running
    from headrace.app.status.log_address import running_address as running_address
    from headrace.app.status.published import FollowedFolder as FollowedFolder
    from headrace.app.status.state import OperatorState as OperatorState
    from headrace.app.status.state import read_state as read_state
    from headrace.app.status.status import FAILED as FAILED
    from headrace.app.status.status import STOPPED as STOPPED
    from headrace.app.status.status import AppStatus as AppStatus
    from headrace.app.status.status import ClusterStatus as ClusterStatus
    from headrace.app.status.status import QueryStatus as QueryStatus
    from headrace.app.status.status import read_status as read_status
    from headrace.app.status.status import rebuild_progress as rebuild_progress
    from headrace.app.status.status import records_per_s as records_per_s
    from headrace.app.status.stop_request import request_stop as request_stop

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "alerts": "Alert Thresholds",
        "batch_report": "BatchReport",
        "description": (
            "AppDescription PipelineNode QueryDescription StateDescription ViewDescription read_description"
        ),
        "lock": "is_running",
        "log_address": "running_address",
        "published": "FollowedFolder",
        "state": "OperatorState read_state",
        "stop_request": "request_stop",
        "status": (
            "AppStatus ClusterStatus FAILED QueryStatus STOPPED read_status rebuild_progress records_per_s"
        ),
    },
)
