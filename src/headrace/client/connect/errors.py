"""confluent-kafka's errors as ours, in one line with the cause and the next step."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from headrace.client.connect.brokers import is_retriable
from headrace.errors import HeadraceError, RequestError, RetriableError

__all__ = ["UnreachableError", "explained", "from_kafka"]


class UnreachableError(RetriableError):
    """No broker answers at the bootstrap address; the same may work later."""


_NEXT_STEP = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "see `headrace topics list`, or use `headrace topics create`",
    KafkaError.TOPIC_ALREADY_EXISTS: "see `headrace topics describe`, or choose another name",
    KafkaError.INVALID_PARTITIONS: "partitions can only be added; give a larger number",
    KafkaError.INVALID_REPLICATION_FACTOR: "a single node keeps one copy; leave --replication out",
    KafkaError.GROUP_ID_NOT_FOUND: "see `headrace groups list`",
    KafkaError.NON_EMPTY_GROUP: "stop its consumers, wait until its state is Empty, and run this again",
    KafkaError.OFFSET_OUT_OF_RANGE: "see `headrace topics describe` for the offsets it holds",
    KafkaError.MSG_SIZE_TOO_LARGE: "send smaller records, or raise the topic's max.message.bytes",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "an administrator can allow it with `headrace acls add`",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "an administrator can allow it with `headrace acls add`",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "an administrator can allow it with `headrace acls add`",
    KafkaError.SECURITY_DISABLED: "start the broker with --authenticate",
    KafkaError.TOPIC_EXCEPTION: "use letters, digits, '.', '_' and '-', at most 249 of them",
}
_UNREACHABLE = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
)


def from_kafka(error: KafkaError, doing: str, bootstrap: str) -> HeadraceError:
    """The client library's error as one of ours: what was being done, the cause, the next step.

    RetriableError where nothing but time is needed, as with a coordinator that still loads.
    """
    if error.code() in _UNREACHABLE:
        return UnreachableError(
            f"{doing}: the broker at {bootstrap} does not answer ({error.str()}); "
            "check that it is running, that the advertised address can be reached from here, "
            "and whether it requires --tls-ca, --user or --client-certificate"
        )
    step = _NEXT_STEP.get(error.code())
    cause = error.str().removeprefix("Broker: ").rstrip(". ")
    if step is None and is_retriable(error.code()):
        return RetriableError(f"{doing}: {cause}; try again in a moment", code=error.code())
    return RequestError(f"{doing}: {cause}" + (f"; {step}" if step else ""), code=error.code())


@contextmanager
def explained(doing: str, bootstrap: str) -> Iterator[None]:
    """Turns the client library's exceptions into ours at the border."""
    try:
        yield
    except KafkaException as raised:
        raise from_kafka(raised.args[0], doing, bootstrap) from raised
    except TimeoutError as raised:
        raise UnreachableError(f"{doing}: no answer from {bootstrap} in time; try again") from raised
