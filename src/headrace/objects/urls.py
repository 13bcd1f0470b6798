"""URLs of object stores: which are supported, and what they may say. Pure."""

import re
from urllib.parse import urlsplit

from headrace.errors import ConfigError

__all__ = ["SCHEMES", "is_url", "joined", "require_supported"]

SCHEMES = ("s3", "gs", "abfs", "abfss", "hdfs", "file")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # `pathlib` makes one slash of two
_INSTEAD = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "wasb": "abfs", "wasbs": "abfss", "webhdfs": "hdfs"}


def is_url(text: str) -> bool:
    """Whether this is a URL, and not the path of a folder."""
    return _URL.match(text) is not None


def require_supported(setting: str, url: str) -> None:
    """Raises ConfigError, with what to write instead, if nothing can be kept at the URL."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        instead = _INSTEAD.get(parts.scheme)
        hint = f"write {instead}://{parts.netloc}{parts.path}" if instead else f"use one of {_listed()}"
        raise ConfigError(f"{setting} {_shown(url)}: {parts.scheme}:// is not supported; {hint}")
    if parts.password is not None or (parts.username and parts.scheme == "s3"):
        raise ConfigError(
            f"{setting} {_shown(url)}: the URL contains credentials, which would be shown and stored; leave "
            "them to the environment of every machine (for S3: AWS_ACCESS_KEY_ID, a profile or a role)"
        )
    if not parts.netloc and parts.scheme not in ("file", "hdfs"):
        raise ConfigError(
            f"{setting} {_shown(url)} names no bucket; write {parts.scheme}://BUCKET/{parts.path.strip('/')}"
        )
    if not parts.path.strip("/"):
        raise ConfigError(
            f"{setting} {_shown(url)} is a whole bucket or disk; name a folder in it, such as "
            f"{parts.scheme}://{_host(url)}/APPLICATION"
        )


def joined(url: str, name: str) -> str:
    """The URL of something below; options behind a question mark stay at the end."""
    place, mark, options = url.partition("?")
    return f"{place.rstrip('/')}/{name}{mark}{options}"


def _listed() -> str:
    return ", ".join(f"{each}://" for each in SCHEMES if each != "abfss")


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{_host(url)}{parts.path}" if parts.scheme == "s3" or parts.password else url
