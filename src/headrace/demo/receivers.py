"""The receivers of the demo's hooks: a webhook endpoint and a mail server, on loopback.

Both respond as real ones would, check what they receive, and count it. They store nothing.
"""

import base64
import hmac
import secrets
import socketserver
import threading
import time
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headrace.hooks.send import parse_secrets, signature

__all__ = ["Arrived", "Receivers"]

_LOOPBACK = "127.0.0.1"
_MAX_BODY_BYTES = 1 << 20
_MAX_AGE_S = 300


class Arrived:
    """The ids of what has arrived; repeated deliveries count once. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: set[str] = set()
        self.repeated = 0
        self.refused = 0

    def __len__(self) -> int:
        return len(self._ids)

    def note(self, message_id: str) -> None:
        with self._lock:
            self.repeated += message_id in self._ids
            self._ids.add(message_id)

    def refuse(self) -> None:
        with self._lock:
            self.refused += 1


class Receivers:
    """Both receivers, each on a free port, until `close`."""

    def __init__(self) -> None:
        self.webhooks, self.mails = Arrived(), Arrived()
        self._secret = f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
        keys = parse_secrets(self._secret, "the demo's secret")
        self._http = ThreadingHTTPServer((_LOOPBACK, 0), _webhook_handler(self.webhooks, keys))
        self._smtp = _MailServer((_LOOPBACK, 0), _mail_handler(self.mails))
        self._servers: tuple[socketserver.BaseServer, ...] = (self._http, self._smtp)
        for server in self._servers:
            threading.Thread(target=server.serve_forever, name="receiver", daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which the application finds them (`shop.py` refers to these names)."""
        return {
            "SHOP_WEBHOOK_URL": f"http://{_LOOPBACK}:{self._http.server_port}/large-orders",
            "SHOP_WEBHOOK_SECRET": self._secret,
            "SHOP_SMTP": f"smtp://{_LOOPBACK}:{self._smtp.server_address[1]}",
        }

    def of(self, kind: str) -> Arrived:
        """What arrived at the receiver of a kind of hook."""
        return {"webhook": self.webhooks, "email": self.mails}[kind]

    def close(self) -> None:
        """Stops listening."""
        for server in self._servers:
            server.shutdown()
            server.server_close()


# --- webhooks -----------------------------------------------------------------------------------


def _webhook_handler(arrived: Arrived, keys: tuple[bytes, ...]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_POST(self) -> None:  # the name that http.server calls
            body = self.rfile.read(min(int(self.headers.get("content-length") or 0), _MAX_BODY_BYTES))
            if _is_signed(self.headers, body, keys, time.time()):
                arrived.note(self.headers["webhook-id"])
                self.send_response(204)
            else:
                arrived.refuse()
                self.send_response(401)
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - its name there
            """Requests are not logged."""

    return Handler


def _is_signed(headers: Any, body: bytes, keys: tuple[bytes, ...], now_s: float) -> bool:
    """Whether the sender knows the secret, and has just sent this."""
    message_id, timestamp = headers.get("webhook-id"), headers.get("webhook-timestamp", "")
    given = headers.get("webhook-signature", "").split()
    if not message_id or not timestamp.isdecimal() or abs(now_s - int(timestamp)) > _MAX_AGE_S:
        return False
    expected = signature(keys, message_id, int(timestamp), body)
    return any(hmac.compare_digest(each.encode(), expected.encode()) for each in given)


# --- mail ---------------------------------------------------------------------------------------


class _MailServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


def _mail_handler(arrived: Arrived) -> type[socketserver.StreamRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        """As much of SMTP as a client needs to submit mail (RFC 5321, without extensions)."""

        timeout = 30

        def handle(self) -> None:
            self._answer("220 the demo's mail server")
            while line := self.rfile.readline(_MAX_BODY_BYTES):
                match line[:4].strip().upper():
                    case b"DATA":
                        self._take()
                    case b"QUIT":
                        self._answer("221 good bye")
                        return
                    case b"EHLO" | b"HELO" | b"MAIL" | b"RCPT" | b"RSET" | b"NOOP":
                        self._answer("250 yes")
                    case _:
                        self._answer("502 no such command here")

        def _take(self) -> None:
            self._answer("354 go on, and end with a dot")
            mail = b""
            while (line := self.rfile.readline(_MAX_BODY_BYTES)) != b".\r\n":
                if not line or len(mail) > _MAX_BODY_BYTES:
                    return
                mail += line
            message_id = message_from_bytes(mail)["Message-ID"]
            if message_id:
                arrived.note(message_id)
                self._answer("250 taken")
            else:
                arrived.refuse()
                self._answer("550 a mail without a Message-ID")

        def _answer(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    return Handler
