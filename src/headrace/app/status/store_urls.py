"""URLs of stores as other processes may see them: without passwords and relative paths. Pure."""

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from headrace.secret_references import is_reference

__all__ = ["absolute_url", "password_variable", "passwords", "with_password", "without_password"]

_WITH_PASSWORD = ("postgresql", "postgres")
_WITH_PATH = ("sqlite", "parquet")
# Parameters of libpq that are secrets themselves.
_SECRET = ("password", "sslpassword")


def without_password(url: str) -> tuple[str, str | None]:
    """The URL without secrets, and the password that was in it, if there was one.

    A reference to a password (`password=env:NAME`) is none, and stays.
    """
    parts = urlsplit(url)
    if parts.scheme not in _WITH_PASSWORD:
        return url, None
    account, at, place = parts.netloc.rpartition("@")
    user, _, password = account.partition(":")
    given = parse_qsl(parts.query, keep_blank_values=True)
    asked = next((value for name, value in given if name == "password" and not is_reference(value)), None)
    kept = urlencode([each for each in given if each[0].lower() not in _SECRET or is_reference(each[1])])
    shown = urlunsplit((parts.scheme, user + at + place, parts.path, kept, ""))
    return shown, unquote(password) or asked or None


def password_variable(url: str) -> str:
    """The environment variable in which child processes of the driver find the password of such a URL."""
    return f"HEADRACE_STORE_PASSWORD_{sha256(url.encode()).hexdigest()[:12].upper()}"


def passwords(urls: Iterable[str]) -> dict[str, str]:
    """The passwords in these URLs, by the environment variable of each."""
    found = dict(map(without_password, urls))
    return {password_variable(url): password for url, password in found.items() if password is not None}


def with_password(url: str, password: str) -> str:
    """A URL that `without_password` gave, with the password in it again."""
    parts = urlsplit(url)
    user, at, place = parts.netloc.rpartition("@")
    if at:
        return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{place}"))
    added = urlencode([*parse_qsl(parts.query, keep_blank_values=True), ("password", password)])
    return urlunsplit(parts._replace(query=added))


def absolute_url(url: str, folder: Path) -> str:
    """The URL with an absolute path; a relative one is taken from `folder`."""
    scheme, _, rest = url.partition("://")
    if scheme not in _WITH_PATH:
        return url
    return f"{scheme}:///{quote(str((folder / unquote(rest.removeprefix('/'))).resolve()))}"
