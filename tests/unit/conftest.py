import socket

import pytest


@pytest.fixture
def unused_port():
    """A loopback port that refuses connections: bound, so nobody else gets it, and not listening."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
