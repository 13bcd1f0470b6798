"""The embedded log of an application: where it listens."""

import contextlib
import socket

import pytest

from headrace.app.processes.embedded_log import EmbeddedLog
from headrace.app.status.lock import locked
from headrace.app.status.log_address import running_address
from headrace.errors import ConfigError


def started(folder, **options):
    return contextlib.closing(_Closable(folder, **options))


class _Closable(EmbeddedLog):
    def close(self):
        self.end()


def test_it_listens_where_it_did_last(tmp_path):
    with locked(tmp_path), started(tmp_path / "log") as log:
        first = log.bootstrap
        assert running_address(tmp_path / "log") == first
    host, _, port = first.rpartition(":")
    with socket.create_server((host, int(port))):  # somebody else's
        assert running_address(tmp_path / "log") is None
    with started(tmp_path / "log") as log:
        assert log.bootstrap == first


def test_a_port_that_somebody_else_took_is_given_up_and_that_is_said(tmp_path):
    said = []
    with started(tmp_path / "log") as log:
        first = log.bootstrap
    host, _, port = first.rpartition(":")
    with socket.create_server((host, int(port))), started(tmp_path / "log", say=said.append) as log:
        other = log.bootstrap
        assert other != first
    assert said == [
        f"{first}, where the log used to listen, is taken by another process: it now listens at {other}; "
        "stop that process, or choose an address with --log HOST:PORT"
    ]


def test_an_address_that_was_asked_for_is_kept_to_or_refused_in_words(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"cannot listen on {address}") as refused:
            started(tmp_path / "log", listen=address)
        assert "{" not in str(refused.value)
    with started(tmp_path / "log", listen=address) as log:
        assert log.bootstrap == address
