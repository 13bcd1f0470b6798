"""The client library's errors as ours: whether the same may succeed later, and what to do."""

import pytest
from confluent_kafka import KafkaError

from headrace.client.connect import from_kafka
from headrace.client.connect.errors import UnreachableError
from headrace.errors import RequestError, RetriableError


@pytest.mark.parametrize(
    "code, kind, said",
    [
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, RetriableError, "try again"),
        (KafkaError.COORDINATOR_NOT_AVAILABLE, RetriableError, "try again"),
        (KafkaError.NOT_COORDINATOR, RetriableError, "try again"),
        (KafkaError.UNSTABLE_OFFSET_COMMIT, RetriableError, "try again"),
        (KafkaError._TRANSPORT, UnreachableError, "check that it is running"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, RequestError, "headrace topics list"),
        (KafkaError.GROUP_ID_NOT_FOUND, RequestError, "headrace groups list"),
        (KafkaError.INVALID_CONFIG, RequestError, "committing: "),
    ],
)
def test_a_code_becomes_an_error_that_says_whether_to_try_again(code, kind, said):
    error = from_kafka(KafkaError(code), "committing", "127.0.0.1:9092")
    assert isinstance(error, kind)
    assert said in str(error)
    assert "\n" not in str(error)
