"""The answer to a produce request: complete when everything that was appended for it is synced."""

from collections.abc import Callable
from typing import Any

from headrace.broker.apis.answers import DeferredReply
from headrace.broker.log import Partition
from headrace.errors import CorruptionError, DiskError, RequestError, RetriableError
from headrace.wire import ErrorCode

__all__ = ["ProduceAnswer", "refuse"]


class ProduceAnswer(DeferredReply):
    """An answer that is there once everything that was appended for it is synced."""

    __slots__ = ("_finish", "_left", "throttle_ms")

    def __init__(self, throttle_ms: int) -> None:
        super().__init__()
        self.throttle_ms = (
            throttle_ms  # for how long the producer shall wait, by its quota or a topic's choice
        )
        self._left = 1  # more may be appended
        self._finish: Callable[[], None] | None = None

    def add(self, partition: Partition, answer: dict[str, Any]) -> None:
        """One more: what was just appended to `partition`, with its part of the answer."""
        self._left += 1

        def synced(error: BaseException | None) -> None:
            if error is not None:
                refuse(answer, error)
            self._settle()

        partition.when_synced(synced)

    def when_synced(self, finish: Callable[[], None]) -> None:
        """Nothing more is appended; calls once everything is synced or refused, perhaps at once."""
        self._finish = finish
        self._settle()

    def _settle(self) -> None:
        self._left -= 1
        if not self._left:
            finish, self._finish = self._finish, None  # which knows us, and the request: no cycle is left
            assert finish is not None
            finish()


def refuse(answer: dict[str, Any], error: BaseException) -> None:
    """Makes a partition's part of the answer a refusal."""
    if isinstance(error, RequestError | RetriableError):
        code = error.code
    elif isinstance(error, CorruptionError):
        code = int(ErrorCode.corrupt_message)
    elif isinstance(error, DiskError):
        code = int(ErrorCode.kafka_storage_error)
    else:
        code = int(ErrorCode.unknown_server_error)
    answer.update(error_code=code, error_message=str(error), base_offset=-1, log_append_time=-1)
