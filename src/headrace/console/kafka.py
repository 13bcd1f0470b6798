"""confluent-kafka's errors as ours, at the border."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from headrace.errors import HeadraceError, RequestError, RetriableError

__all__ = ["explained", "from_kafka"]

_AWAY = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
)
# The library's own codes for what the broker would have answered.
_AS_BROKER = {
    KafkaError._UNKNOWN_TOPIC: KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION: KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._INVALID_ARG: KafkaError.INVALID_REQUEST,
}


def from_kafka(error: KafkaError, doing: str) -> HeadraceError:
    """RetriableError where the log is away or not ready, else RequestError with the broker's code."""
    cause = f"{doing}: {error.str().removeprefix('Broker: ').rstrip('. ')}"
    if error.code() in _AWAY:
        return RetriableError(f"{cause}; the log does not answer, or is not ready", code=error.code())
    return RequestError(cause, code=_AS_BROKER.get(error.code(), error.code()))


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turns the client library's exceptions into ours; `doing` begins the message."""
    try:
        yield
    except KafkaException as raised:
        raise from_kafka(raised.args[0], doing) from raised
    except TimeoutError as raised:
        raise RetriableError(f"{doing}: no answer from the log in time") from raised
