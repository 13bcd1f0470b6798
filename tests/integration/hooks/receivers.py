"""Receivers of webhooks on loopback: real sockets, and every bad manner that a test wants."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import standardwebhooks

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


@dataclass(frozen=True)
class Request:
    line: str
    headers: dict
    body: bytes
    at: float

    @property
    def id(self):
        return self.headers["webhook-id"]

    @property
    def data(self):
        return json.loads(self.body)["data"]

    @property
    def source(self):
        place = json.loads(self.body)["source"]
        return place["topic"], place["partition"], place["offset"]


def answer(status, headers=(), body=b""):
    lines = [f"HTTP/1.1 {status} Because", *headers, f"content-length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


class Receiver:
    """Takes requests and verifies their signatures; `reply` decides what comes back.

    `reply` gets the request and its number and returns bytes, or a function that is given
    the connection. What was answered with 200 by default, or by `reply`, is in `requests`
    all the same, in the order of arrival.
    """

    def __init__(self, secret, *, reply: Callable = lambda request, number: OK, tls=None):
        self.secret = secret
        self.reply = reply
        self.requests: list[Request] = []
        self.invalid: list[Exception] = []
        self.arrived = threading.Condition()
        self._tls = tls
        self._closed = False
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port = self._socket.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._closed = True
        self._socket.close()

    @property
    def url(self):
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/in"

    @property
    def ids(self):
        return [each.id for each in self.requests]

    def wait_for(self, condition, timeout_s=90):
        """Until the condition holds of the requests that came; fails with what did come."""
        with self.arrived:
            held = self.arrived.wait_for(lambda: condition(self.requests), timeout_s)
        assert held, f"{len(self.requests)} requests came: {self.requests[-3:]}"
        assert not self.invalid, self.invalid

    def wait_for_count(self, count, timeout_s=90):
        self.wait_for(lambda requests: len(requests) >= count, timeout_s)

    def _accept(self):
        while not self._closed:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection:
                self._exchange(connection)
        except (OSError, ssl.SSLError):
            pass

    def _exchange(self, connection):
        request = read_request(connection)
        if request is None:
            return
        with self.arrived:
            number = len(self.requests)
            self.requests.append(request)
            try:
                standardwebhooks.Webhook(self.secret).verify(request.body, request.headers)
            except Exception as error:
                self.invalid.append(error)
            self.arrived.notify_all()
        reply = self.reply(request, number)
        if callable(reply):
            reply(connection)
        else:
            connection.sendall(reply)


def read_request(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            return None
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
    while len(body) < int(headers["content-length"]):
        part = connection.recv(65536)
        if not part:
            return None
        body += part
    return Request(line, headers, body, time.monotonic())
