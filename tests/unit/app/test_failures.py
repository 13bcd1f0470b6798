"""Why a query failed, in one sentence."""

from headrace.app.failures import failure_of


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
    assert (
        failure_of("Python worker failed to connect back.\nmore").cause
        == "Python worker failed to connect back."
    )
