"""Why a query failed, in one sentence."""

import pytest

from headrace.app.run.failures import NotedSink, QueryStart, failure_of
from headrace.client.write import RecordTooLarge
from headrace.errors import FencedError, RequestError, RetriableError


def test_our_own_error_is_found_in_spark_s_traceback_and_the_innermost_counts():
    text = (
        "[STREAM_FAILED] Query terminated with exception: Job aborted\n"
        "pyspark.errors.exceptions.base.PySparkRuntimeError: outer\n"
        "headrace.errors.RetriableError: the log is away; try again\n"
        "headrace.errors.RequestError: orders-0 was read up to offset 7, but the log ends at 3\n"
        "\tat org.apache.spark.Whatever"
    )
    failure = failure_of(text)
    assert failure.cause == "orders-0 was read up to offset 7, but the log ends at 3"
    assert not failure.may_retry


def test_what_may_pass_is_tried_again():
    assert failure_of("x\nheadrace.errors.RetriableError: busy; try again").may_retry


def test_python_s_own_error_is_named_with_its_kind():
    failure = failure_of("Job aborted\n  File x\nZeroDivisionError: division by zero\n")
    assert failure.cause == "ZeroDivisionError: division by zero"
    assert failure.may_retry


def test_a_message_without_a_known_error_is_given_by_its_first_line():
    assert failure_of("Python worker exited.\nmore").cause == "Python worker exited."


def test_a_busy_machine_passes_by_itself():
    failure = failure_of("Python worker failed to connect back.\nmore")
    assert failure.may_retry and failure.is_outage and failure.is_overload
    assert failure.cause.startswith("a Python process took longer to start than the 10 seconds")


def test_an_exception_of_a_user_s_function_is_said_with_its_line():
    text = (
        "[STREAM_FAILED] Job aborted due to stage failure: Traceback (most recent call last):\n"
        '  File "/venv/lib/python3.11/site-packages/pyspark/worker.py", line 2045, in main\n'
        "    process()\n"
        '  File "/home/me/weather.py", line 12, in clean\n'
        "    raise ValueError(x)\n"
        '  File "/venv/lib/python3.11/site-packages/numpy/core.py", line 3, in whatever\n'
        "ValueError: too hot: 7.0\n"
        "\n\tat org.apache.spark.api.python.BasePythonRunner\n"
    )
    assert failure_of(text).cause == "/home/me/weather.py, line 12: ValueError: too hot: 7.0"


def test_what_the_client_library_says_is_given_without_its_wrapping():
    text = 'x\ncimpl.KafkaException: KafkaError{code=_TRANSPORT,val=-195,str="Connection refused"}\n'
    assert failure_of(text).cause == "KafkaException: Connection refused"


@pytest.mark.parametrize(
    ("raised", "may_retry", "is_fenced"),
    [
        (RetriableError("headrace.errors.FencedError: as text only"), True, False),
        (RequestError("the store refuses"), False, False),
        (RecordTooLarge("a kind of RequestError", topic="orders"), False, False),
        (FencedError("a newer run has taken over"), False, True),
    ],
)
def test_what_a_sink_raises_is_judged_by_its_type_whatever_spark_makes_of_it(raised, may_retry, is_fenced):
    failure = failure_of("Job aborted\nheadrace.errors.ConfigError: another\nValueError: a third", raised)
    assert (failure.cause, failure.may_retry, failure.is_fenced) == (str(raised), may_retry, is_fenced)


def test_an_error_of_python_s_own_from_a_sink_is_found_in_the_message_with_its_place():
    text = 'Traceback\n  File "/home/me/weather.py", line 12, in clean\nValueError: too hot\n'
    assert (
        failure_of(text, ValueError("too hot")).cause == "/home/me/weather.py, line 12: ValueError: too hot"
    )


def test_a_sink_s_error_is_noted_until_its_next_batch_or_start():
    error = RequestError("no")

    def refuse_first(batch, batch_id):
        if batch_id == 1:
            raise error

    sink = NotedSink(refuse_first)
    start = QueryStart(lambda: None, sink)
    with pytest.raises(RequestError):
        sink(None, 1)
    assert start.raised() is error
    sink(None, 2)
    assert start.raised() is None
    with pytest.raises(RequestError):
        sink(None, 1)
    start()
    assert start.raised() is None
