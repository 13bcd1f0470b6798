"""Stragglers correct what was published: the old result is retracted, the new one takes its place."""

from headrace import App, agg, tumbling

app = App("corrections")

readings = app.stream(
    "readings",
    schema="sensor string, celsius double, measured_at timestamp, sent_at timestamp",
    event_time="measured_at",
    sent_at="sent_at",
    lateness="2 seconds",
    late="correct",
    correct_for="1 hour",
)


@app.view
def warmest_per_minute():
    """Per sensor and minute, by clocks that were put right."""
    return readings.window(tumbling("1 minute"), by="sensor").agg(
        warmest=agg.max("celsius"), average=agg.mean("celsius"), readings=agg.count()
    )
