"""The systems that can follow a topic, each with its rows and its position in one transaction.

`open_target` imports the one that is asked for; `RespConnection` speaks Redis's protocol.
"""

from headrace.derived.targets.resp import RedisAddress, RespConnection

__all__ = ["RedisAddress", "RespConnection"]
