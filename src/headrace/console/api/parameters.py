"""What a route takes in its path and query: declared once, documented and checked from that. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from headrace.console.problems import ProblemError

__all__ = ["Parameter", "format_rfc3339", "parse_parameters", "parse_rfc3339"]

ParameterKind = Literal["string", "integer", "boolean", "time"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter; a time is RFC 3339 and is handed on as milliseconds since the epoch.

    `repeated` ones are handed on as a tuple. In the path all are required.
    """

    name: str
    help: str
    kind: ParameterKind = "string"
    place: Literal["path", "query", "header"] = "query"
    default: Any = None
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    example: Any = None
    required: bool = False
    repeated: bool = False

    def parse(self, text: str) -> Any:
        """The value; raises ProblemError naming the parameter."""
        match self.kind:
            case "integer":
                return self._integer(text)
            case "boolean":
                if text not in ("true", "false"):
                    raise self._wrong(text, "true or false")
                return text == "true"
            case "time":
                return parse_rfc3339(text, f"parameter {self.name}")
        if self.choices and text not in self.choices:
            raise self._wrong(text, "one of " + ", ".join(self.choices))
        return text

    def _integer(self, text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
            raise self._wrong(text, "a whole number")
        value = int(text)
        if self.minimum is not None and value < self.minimum:
            raise self._wrong(text, f"at least {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise self._wrong(text, f"at most {self.maximum}")
        return value

    def _wrong(self, text: str, wanted: str) -> ProblemError:
        shown = text if len(text) <= 100 else text[:100] + "…"
        return ProblemError(400, f"parameter {self.name}={shown!r}: must be {wanted}", kind="bad-parameter")


def parse_parameters(
    declared: Iterable[Parameter], given: Iterable[tuple[str, str]], *, others: bool = False
) -> dict[str, Any]:
    """The values of query parameters by name, defaults included; raises ProblemError.

    `others` leaves undeclared ones to the handler; otherwise they are refused, since a
    misspelt filter must not pass for none.
    """
    known = {each.name: each for each in declared if each.place == "query"}
    values: dict[str, Any] = {name: () if each.repeated else each.default for name, each in known.items()}
    seen: set[str] = set()
    for name, text in given:
        parameter = known.get(name)
        if parameter is None:
            if others:
                continue
            names = ", ".join(known) or "none"
            raise ProblemError(
                400, f"unknown parameter {name!r}; the parameters are: {names}", kind="bad-parameter"
            )
        if parameter.repeated:
            values[name] = (*values[name], parameter.parse(text))
        elif name in seen:
            raise ProblemError(400, f"parameter {name} is given more than once", kind="bad-parameter")
        else:
            values[name] = parameter.parse(text)
        seen.add(name)
    for name, parameter in known.items():
        if parameter.required and name not in seen:
            raise ProblemError(400, f"parameter {name} is missing: {parameter.help}", kind="bad-parameter")
    return values


def parse_rfc3339(text: str, what: str) -> int:
    """Milliseconds since the epoch of an RFC 3339 time; without a zone it is UTC. Raises ProblemError."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        span = moment - _EPOCH
    except (ValueError, OverflowError):
        raise ProblemError(
            400, f"{what}={text[:100]!r}: must be a time such as 2026-11-15T21:30:00Z", kind="bad-parameter"
        ) from None
    return span // timedelta(milliseconds=1)


def format_rfc3339(time_ms: int | None) -> str | None:
    """RFC 3339 in UTC with milliseconds; None for none, and for what no calendar has."""
    if time_ms is None or time_ms < 0:
        return None
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"
