"""How much the console is used: requests by route, method and status, and how long they took."""

from collections.abc import Iterator

from headrace.metrics import Counter, Family, Histogram

__all__ = ["HttpMetrics"]


class HttpMetrics:
    """Counters of one console; labels come from the table of routes, so there are few."""

    def __init__(self) -> None:
        self._requests = Counter(
            "headrace_console_requests_total", "Requests by route.", "method", "route", "status"
        )
        self._seconds = Histogram(
            "headrace_console_request_seconds", "Time to answer, subscriptions excepted.", "route"
        )

    def count(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """One request that was answered; a subscription has no time, for it lasts as long as it is wanted."""
        known = method if method in _METHODS else "OTHER"
        self._requests.add(1, known, route, str(status))
        if seconds is not None:
            self._seconds.observe(seconds, route)

    def families(self) -> Iterator[Family]:
        yield self._requests.family()
        yield self._seconds.family()


_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET")
