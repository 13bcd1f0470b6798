"""Who may do what, and from which page: pure decisions on the headers of a request.

Three dangers, three checks. A name that somebody points at this address (DNS rebinding)
fails the check of Host. A page of another site that sends requests fails the check of
Origin and lacks the header that only this site's own page can send. A person without
the role fails the route's. Programs that are no browsers send neither Origin nor
Sec-Fetch-Site and need only their token.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from urllib.parse import urlsplit

from headrace.addresses import is_loopback
from headrace.console.problems import Problem

__all__ = [
    "COOKIE",
    "LOCAL",
    "NOBODY",
    "REQUEST_HEADER",
    "SECURITY_HEADERS",
    "Hosts",
    "Principal",
    "Role",
    "presented_token",
    "refusal_by_origin",
    "refusal_by_role",
]

COOKIE = "headrace_session"
REQUEST_HEADER = "headrace-request"

SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        # No text becomes markup or script, whatever the page's code does with it.
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Role(IntEnum):
    """What a principal may do; each may do what the ones before it may."""

    NOBODY = 0
    READER = 1
    WRITER = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. `by_token` when a bearer token said so, which no page of another site can send."""

    name: str
    role: Role
    by_token: bool = False


LOCAL = Principal("local", Role.ADMIN)
NOBODY = Principal("nobody", Role.NOBODY)


@dataclass(frozen=True, slots=True)
class Hosts:
    """The names under which this server may be reached.

    Addresses written in digits cannot be pointed elsewhere by DNS: on loopback those of
    loopback are allowed, beyond it all of them. The port does not matter, since tunnels
    and proxies change it.
    """

    names: frozenset[str]
    local_only: bool

    @classmethod
    def of(cls, listen_host: str, allowed: Iterable[str] = ()) -> "Hosts":
        """Of the address listened on, and of further names."""
        names = {listen_host.lower(), "localhost", *(each.strip().lower() for each in allowed)}
        return cls(frozenset(names - {""}), is_loopback(listen_host))

    def allows(self, header: str | None) -> bool:
        """Whether a Host header names this server."""
        name = _name(header or "")
        if name is None:
            return False
        if name in self.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return not self.local_only or is_loopback(name)


def _name(host: str) -> str | None:
    """The name in "name:port", in small letters and without brackets; None if it is none."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises if it is no number
    except ValueError:
        return None
    if not parts.hostname or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        return None
    return parts.hostname


def refusal_by_origin(
    *, hosts: Hosts, headers: Mapping[str, str], principal: Principal, changes: bool, websocket: bool
) -> Problem | None:
    """Why a request must not be served, no matter who sent it; None if nothing speaks against it.

    `headers` have names in small letters.
    """
    host = headers.get("host")
    if not hosts.allows(host):
        return Problem(
            status=421,
            detail=f"this console does not serve the host {host!r}",
            next_step="use the address that it printed, or start it with --allow-host NAME",
        )
    if not (changes or websocket):
        return None
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if (origin is not None and not _same_origin(origin, host)) or site in ("cross-site", "same-site"):
        return Problem(
            status=403,
            kind="foreign-origin",
            detail=f"a page from another site ({origin or site}) may not send this request",
            next_step="use the console's own page, or send a bearer token from a program",
        )
    from_page = origin is not None or site is not None
    if changes and from_page and not principal.by_token and headers.get(REQUEST_HEADER) != "1":
        return Problem(
            status=403,
            kind="no-request-header",
            detail="changes from a browser need the header Headrace-Request: 1",
            next_step="send this header; only the console's own pages can",
        )
    return None


def _same_origin(origin: str, host: str | None) -> bool:
    """Whether a page of `origin` came from this very host and port; the scheme may be a proxy's."""
    scheme, separator, place = origin.partition("://")
    return bool(separator) and scheme in ("http", "https") and place.lower() == (host or "").lower()


def refusal_by_role(principal: Principal, needed: Role) -> Problem | None:
    """Why this principal may not do what needs that role."""
    if principal.role >= needed:
        return None
    if principal.role == Role.NOBODY:
        return Problem(
            status=401,
            detail="this request needs a login",
            headers={"WWW-Authenticate": 'Bearer realm="headrace"'},
        )
    return Problem(
        status=403,
        detail=f"{principal.name} has the role {principal.role.name.lower()}; "
        f"this request needs the role {needed.name.lower()}",
    )


def presented_token(headers: Mapping[str, str], cookies: Mapping[str, str]) -> tuple[str | None, bool]:
    """The token of a request and whether it came as a bearer token, which wins over the cookie."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip(), True
    return cookies.get(COOKIE), False
