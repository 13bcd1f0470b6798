"""An S3 in this process, for tests: moto's, on a free port of the loopback."""

import importlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from pyarrow import fs

__all__ = ["S3_ENVIRONMENT", "s3_server"]

S3_ENVIRONMENT = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")


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
    values = (f"http://127.0.0.1:{port}", "testing", "testing", "us-east-1")
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
