"""What an HTTP API is made of: routes, parameters, problems, schemas and the OpenAPI document.

Knows no topic and no view.
"""

from headrace.console.api.openapi import document
from headrace.console.api.parameters import Parameter, format_rfc3339, parse_parameters, parse_rfc3339
from headrace.console.api.routing import (
    Call,
    LivePart,
    Route,
    RouteBody,
    RouteResponse,
    SocketHandler,
    json_response,
)
from headrace.console.api.schemas import (
    ANYTHING,
    COMMON,
    Schema,
    array,
    integer,
    mapping,
    nullable,
    object_of,
    ref,
    string,
)

__all__ = [
    "ANYTHING",
    "COMMON",
    "Call",
    "LivePart",
    "Parameter",
    "Route",
    "RouteBody",
    "RouteResponse",
    "Schema",
    "SocketHandler",
    "array",
    "document",
    "format_rfc3339",
    "integer",
    "json_response",
    "mapping",
    "nullable",
    "object_of",
    "parse_parameters",
    "parse_rfc3339",
    "ref",
    "string",
]
