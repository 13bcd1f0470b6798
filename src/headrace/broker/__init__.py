"""The server: Kafka's protocol on top of the log.

One event loop owns all state; worker threads write, sync and read cold data.
An acknowledged record is on disk; only synced records are served; memory
follows from `BrokerSettings`. `Broker` is the in-process form, `run` the
process. May import `wire`, `groups`, `storage` and below.
"""

from headrace.broker.process import run
from headrace.broker.server import Broker
from headrace.broker.settings import BrokerSettings
from headrace.groups import GroupSettings

__all__ = ["Broker", "BrokerSettings", "GroupSettings", "run"]
