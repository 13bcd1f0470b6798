import pytest

from headrace.console.problems import Problem, ProblemError, problem_of
from headrace.errors import (
    ConfigError,
    CorruptionError,
    DiskError,
    FencedError,
    HeadraceError,
    RequestError,
    RetriableError,
)
from headrace.wire import ErrorCode


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RequestError("no"), 400),
        (RequestError("no", code=ErrorCode.unknown_topic_or_partition), 404),
        (RequestError("no", code=ErrorCode.topic_already_exists), 409),
        (RequestError("no", code=ErrorCode.message_too_large), 413),
        (RequestError("no", code=ErrorCode.topic_authorization_failed), 403),
        (RetriableError("later"), 503),
        (ConfigError("not so"), 503),
        (FencedError("stop"), 409),
        (DiskError("full", full=True), 507),
        (CorruptionError("bytes"), 502),
        (HeadraceError("?"), 500),
        (ProblemError(418, "a teapot"), 418),
    ],
)
def test_whose_fault_it_is_shows_in_the_status(error, status):
    assert problem_of(error).status == status


def test_a_problem_tells_what_happened_and_what_to_do():
    found = Problem(status=404, detail="there is no view 'x'").to_json()
    assert found.keys() == {"type", "title", "status", "detail", "next"}
    assert all(found.values())


def test_whoever_may_try_again_is_told_when():
    assert problem_of(RetriableError("later")).headers["Retry-After"] == "1"
