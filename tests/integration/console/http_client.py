"""Requests as tests make them: one connection each, the answer whole; and streams of events."""

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


PATIENCE_S = 240


def ask(
    url: str,
    method: str,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
    *,
    patient: bool = True,
    **query,
) -> Answer:
    """One request; a body that is not bytes goes as JSON, query parameters with None are left out.

    A log that takes long to answer on a busy machine is a 503 that says "try again": a patient reader does.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = _ask(url, method, path, body, headers, query)
        if not (patient and method == "GET" and answer.status == 503) or time.monotonic() > deadline:
            return answer
        time.sleep(0.2)


def _ask(
    url: str, method: str, path: str, body: Any, headers: dict[str, str] | None, query: dict[str, Any]
) -> Answer:
    parts = urlsplit(url)
    given = dict(headers or {})
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        given.setdefault("Content-Type", "application/json")
    asked = [(name, value) for name, value in query.items() if value is not None]
    if asked:
        path += "?" + urlencode(asked, doseq=True)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=90)
    try:
        connection.request(method, path, body, given)
        response = connection.getresponse()
        return Answer(
            response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        )
    finally:
        connection.close()


@dataclass
class SseEvent:
    name: str
    id: str
    data: Any


class Events:
    """An open stream of server-sent events, read as a browser would; close it to be cut."""

    def __init__(self, url: str, path: str, *, last_id: str | None = None, headers=None, timeout=60) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        given = {"Accept": "text/event-stream", **(headers or {})}
        if last_id is not None:
            given["Last-Event-ID"] = last_id
        self._connection.request("GET", path, headers=given)
        self._response = self._connection.getresponse()
        self.status = self._response.status
        self.headers = {name.lower(): value for name, value in self._response.getheaders()}

    def body(self) -> bytes:
        return self._response.read()

    def __iter__(self) -> Iterator[SseEvent]:
        name, ident, data = "", "", []
        for raw in self._response:
            line = raw.rstrip(b"\n").decode()
            if not line:
                if data:
                    yield SseEvent(name or "message", ident, json.loads("\n".join(data)))
                name, ident, data = "", "", []
                continue
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match field:
                case "event":
                    name = value
                case "id":
                    ident = value
                case "data":
                    data.append(value)

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
