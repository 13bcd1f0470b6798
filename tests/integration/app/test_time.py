"""Event time through Spark, as docs/explanation/time.md says.

Silence, new partitions, the future, a clock set back.
"""

import itertools
import time

import pytest
from app_runs import (
    BASE_MS,
    counting,
    event,
    kept_running,
    log_ends,
    reflected,
    require_equal,
    seconds_of,
    send,
    wait_until,
)
from topics import add_partitions, create_topic

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]


def us(second):
    return (BASE_MS + second * 1000) * 1000


def test_the_watermark_does_what_the_page_on_time_says(spark, our_log, tmp_path):
    """One application, one query: what happens to it in turn."""
    topic, store = create_topic(our_log, 2), f"sqlite:///{tmp_path}/views.db"
    app = counting(topic, store=store, idle_after="1 second", max_ahead="30 minutes")
    send(our_log, topic, [event(1), event(35)], 0)
    send(our_log, topic, [event(2)], 1)
    reports = []
    with kept_running(app, our_log, tmp_path / "data", on_batch=reports.append) as started:

        def caught_up():
            return reflected(store).offsets.get(topic) == log_ends(our_log, topic)

        # A partition that lags holds all results back, and when it is idle it does so no more:
        # event time is then that of the other, which goes on (on full seconds, unlike a clock).
        second = itertools.count(36)

        def results_while_the_other_goes_on():
            send(our_log, topic, [event(next(second))], 0)
            return seconds_of(store)

        found = wait_until(started, results_while_the_other_goes_on)
        assert found["here", 0] == 2, "one of each partition"
        assert reports[0].watermark_us == us(1) and not reports[0].changed["counts"]
        closing = next(each for each in reports if each.changed["counts"])
        assert closing.watermark_us > us(10) and closing.watermark_us % 1_000_000 == 0

        # All input stops: event time goes on with the clock, and the last window closes.
        last = next(second) - 1
        window = last // 10 * 10
        wait_until(started, lambda: ("here", window) in seconds_of(store))
        assert reflected(store).watermark_us >= us(window + 10)

        # A partition is added and read from its beginning. Its first rows are on time for it,
        # and correct what was published without them.
        before = reflected(store)
        add_partitions(our_log, topic, 3)
        send(our_log, topic, [event(5), event(last + 500)], 2)
        wait_until(started, lambda: seconds_of(store)["here", 0] == 3 and caught_up())
        after = reflected(store)
        assert after.offsets[topic][2] == 2
        assert after.counters["corrected"] == before.counters.get("corrected", 0) + 1
        assert after.watermark_us >= before.watermark_us, "it never goes back"

        # An event from the far future is set aside and moves nothing.
        ahead = int(time.time() * 1000) + 3_600_000 - BASE_MS
        send(our_log, topic, [event(ahead / 1000)], 2)
        wait_until(started, caught_up)
        assert reflected(store).counters["dead"] == 1
        assert reflected(store).watermark_us < us(ahead / 1000 - 3600)

        # A producer's clock is set back: its records are late, and the watermark stays.
        before = reflected(store)
        earlier = BASE_MS - 600_000
        send(our_log, topic, [event(-600), event(-599)], 2, timestamp=earlier)
        wait_until(started, caught_up)
        after = reflected(store)
        assert after.counters["dropped"] == before.counters.get("dropped", 0) + 2
        assert after.watermark_us >= before.watermark_us
        require_equal(spark, app, our_log, store)
