"""An S3 for tests, moto's: in this process on a free port of the loopback, or in a process of its own."""

import importlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyarrow import fs

from headrace.testing.kafka_process import free_ports

__all__ = ["S3_ENVIRONMENT", "s3_process", "s3_server"]

S3_ENVIRONMENT = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
_ACCOUNT = ("testing", "testing", "us-east-1")
_TIMEOUT_S = 60


@contextmanager
def s3_process(host: str, bucket: str = "bucket") -> Iterator[dict[str, str]]:
    """A server on an address of this machine, with an empty bucket: the environment of its clients.

    It keeps everything in memory. Raises ImportError where moto is not installed.
    """
    importlib.import_module("moto.server")
    (port,) = free_ports(1, host)
    server = subprocess.Popen(  # noqa: S603 - this very interpreter
        [sys.executable, "-m", "moto.server", "-H", host, "-p", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://{host}:{port}"
        _create_bucket(server, address, bucket)
        yield dict(zip(S3_ENVIRONMENT, (address, *_ACCOUNT), strict=True))
    finally:
        server.kill()
        server.wait()


def _create_bucket(server: subprocess.Popen[bytes], address: str, bucket: str) -> None:
    """Returns once the server has made the bucket."""
    key, secret, region = _ACCOUNT
    system = fs.S3FileSystem(
        access_key=key,
        secret_key=secret,
        region=region,
        endpoint_override=address,
        allow_bucket_creation=True,
    )
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(OSError):
            system.create_dir(bucket)
            return
        time.sleep(0.05)
    raise RuntimeError(f"the S3 server at {address} does not answer")


@contextmanager
def s3_server(bucket: str = "bucket") -> Iterator[str]:
    """The URL of an empty bucket; what AWS's clients read from the environment is set within.

    Raises ImportError where moto is not installed.
    """
    moto = importlib.import_module("moto.server")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    before = {name: os.environ.get(name) for name in S3_ENVIRONMENT}
    values = (f"http://127.0.0.1:{port}", *_ACCOUNT)
    os.environ.update(zip(S3_ENVIRONMENT, values, strict=True))
    try:
        system, path = fs.FileSystem.from_uri(f"s3://{bucket}?allow_bucket_creation=true")
        system.create_dir(path)
        yield f"s3://{bucket}"
    finally:
        server.stop()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
