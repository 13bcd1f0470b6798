"""Failed payments of a card within a minute of each other: a sliding window ends at every event."""

from headrace import App, agg, sliding

app = App("payments")

payments = app.stream(
    "payments",
    schema="payment_id string, card string, ok boolean, paid_at timestamp",
    event_time="paid_at",
    lateness="5 seconds",
)


@app.view
def failures_within_a_minute():
    """For each failed payment, how many of the same card failed in the minute up to it."""
    return payments.where("not ok").window(sliding("1 minute"), by="card").agg(failures=agg.count())
