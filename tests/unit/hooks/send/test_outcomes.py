"""What answers mean."""

from email.utils import formatdate

import pytest

from headrace.hooks.send.outcomes import DeliveryResult, of_status, retry_after_s


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        ((200, 201, 202, 204, 299), DeliveryResult.DELIVERED),
        ((408, 425, 429, 500, 502, 503, 504, 599), DeliveryResult.RETRY),
        ((300, 301, 302, 307, 308, 400, 401, 403, 404, 409, 413, 422, 499), DeliveryResult.REFUSED),
        ((410,), DeliveryResult.GONE),
    ],
)
def test_a_status_has_one_meaning(statuses, verdict):
    assert {of_status(status).result for status in statuses} == {verdict}


def test_a_redirect_says_that_it_is_not_followed():
    assert "not followed" in of_status(302).reason


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 7 ", 7.0),
        (formatdate(1_000_060, usegmt=True), 60.0),
        (formatdate(999_000, usegmt=True), 0.0),
        (None, None),
        ("", None),
        ("-5", None),
        ("soon", None),
        ("٣", None),
        ("Mon, 99 Xyz 2026 00:00:00 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value, seconds):
    assert retry_after_s(value, 1_000_000) == seconds
