"""What a session's first batch would wait for is begun beside the planning, and harms nobody if it fails."""

import logging

import pytest

from headrace.streams.spark.warm_up import warm_up

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

HANG_GUARD_S = 120


def test_both_jobs_run_to_their_end(spark, caplog):
    caplog.set_level(logging.DEBUG, "headrace.streams.spark.warm_up")
    for job in warm_up(spark):
        job.join(HANG_GUARD_S)
        assert not job.is_alive()
    assert caplog.messages == []  # each would say why it did not


def test_a_session_that_is_gone_is_no_error(caplog):
    class Gone:
        def __getattr__(self, name):
            raise RuntimeError("the session was stopped")

    caplog.set_level(logging.DEBUG, "headrace.streams.spark.warm_up")
    for job in warm_up(Gone()):
        job.join(HANG_GUARD_S)
    assert caplog.messages == ["Spark was not warmed up: the session was stopped"] * 2
