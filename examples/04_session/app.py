"""Visits: clicks of a visitor that are at most half an hour apart belong together."""

from headrace import App, agg, session

app = App("visits")

clicks = app.stream(
    "clicks",
    schema="visitor string, page string, clicked_at timestamp",
    event_time="clicked_at",
    lateness="10 seconds",
)


@app.view
def visits():
    """Each visit: when it began and ended, how many pages, the first and the last."""
    return clicks.window(session("30 minutes"), by="visitor").agg(
        pages=agg.count(), landed_on=agg.first("page"), left_from=agg.last("page")
    )
