"""The page: files of this package, served as they are, with types that browsers believe."""

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from starlette.responses import Response

from headrace.console.api import Call, Parameter, Route, RouteResponse
from headrace.console.problems import ProblemError
from headrace.console.security import Role

__all__ = ["ROUTES"]

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}


async def index(call: Call) -> Response:
    return await call.context.workers.run(_file, "index.html", call.request.headers.get("if-none-match"))


async def static(call: Call) -> Response:
    return await call.context.workers.run(_file, call["path"], call.request.headers.get("if-none-match"))


def _file(name: str, known: str | None) -> Response:
    """A file of `static/`; 304 if the browser has it already."""
    kind = TYPES.get(PurePosixPath(name).suffix)
    content = None if kind is None else _read(name)
    if content is None:
        raise ProblemError(404, f"there is no file {name!r}")
    tag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if known == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers={**headers, "Content-Type": kind or ""})


def _read(name: str) -> bytes | None:
    """The bytes of a file inside the folder; None for whatever is none, or would lead out of it."""
    found: Traversable = files("headrace.console").joinpath("static")
    for part in name.split("/"):
        if part in ("", ".", "..") or "\\" in part or "\0" in part:
            return None
        found = found.joinpath(part)
    return found.read_bytes() if found.is_file() else None


_FILE = {200: RouteResponse("The file.", media_type="*/*")}

ROUTES = (
    Route(
        method="GET", path="/", role=Role.NOBODY, tag="page", summary="The page", handler=index, answers=_FILE
    ),
    Route(
        method="GET",
        path="/static/{path:path}",
        role=Role.NOBODY,
        tag="page",
        summary="A file of the page",
        handler=static,
        answers={**_FILE, 404: RouteResponse("Not found.")},
        parameters=(Parameter(name="path", place="path", help="Path of the file."),),
    ),
)
