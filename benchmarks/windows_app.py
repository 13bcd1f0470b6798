"""The application of `windows.py`, as a user writes one; `headrace run benchmarks/windows_app.py` runs it.

Reads the topic that CLICKS_TOPIC names, and keeps its view in the default store.
"""

import os

from headrace import App, agg, hopping, session, tumbling

__all__ = ["app", "clicks"]

WINDOWS = {
    "tumbling": tumbling("1 minute"),
    "hopping": hopping("5 minutes", every="1 minute"),
    "session": session("5 seconds"),
}


def clicks(topic: str, window: str, store: str | None = None) -> App:
    app = App("clicks", store=store)
    stream = app.stream(topic, schema="user string, amount long, at long", event_time="at")

    @app.view
    def counts() -> object:
        return stream.window(WINDOWS[window], by="user").agg(n=agg.count(), total=agg.sum("amount"))

    return app


app = clicks(os.environ.get("CLICKS_TOPIC", "clicks"), "tumbling")
