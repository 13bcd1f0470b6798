"""Quotas by client id, asked for and set. Users and addresses have none."""

import dataclasses
from typing import Any

from headrace.broker.limits import Quotas
from headrace.errors import RequestError
from headrace.wire import ErrorCode, Request

__all__ = ["QuotaApis"]

CLIENT_ID = "client-id"
ENTITIES = (CLIENT_ID, "user", "ip")
EXACT, DEFAULT, ANY = 0, 1, 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QuotaApis:
    """Quotas by client id."""

    quotas: Quotas

    async def describe_client_quotas(self, request: Request) -> dict[str, Any]:
        """The quotas that match every component of the filter."""
        components = request.body.components
        kinds = [component.entity_type for component in components]
        wrong = [kind for kind in kinds if kind not in ENTITIES or kinds.count(kind) > 1]
        wrong += [str(each.match_type) for each in components if each.match_type not in (EXACT, DEFAULT, ANY)]
        if wrong:
            message = f"a filter has {', '.join(ENTITIES)} at most once each; this one has {wrong[0]!r}"
            return {"error_code": int(ErrorCode.invalid_request), "error_message": message, "entries": None}
        only_clients = set(kinds) <= {CLIENT_ID} and (kinds or not request.body.strict)
        entries = [
            {
                "entity": [{"entity_type": CLIENT_ID, "entity_name": client_id}],
                "values": [{"key": key, "value": rate} for key, rate in rates.items()],
            }
            for client_id, rates in self.quotas.table.items()
            if only_clients and all(_matches(component, client_id) for component in components)
        ]
        return {"entries": entries}

    async def alter_client_quotas(self, request: Request) -> dict[str, Any]:
        """Sets and removes quotas, each entry for itself; in force when it is answered."""
        answers = []
        for entry in request.body.entries:
            entity = [
                {"entity_type": each.entity_type, "entity_name": each.entity_name} for each in entry.entity
            ]
            answer: dict[str, Any] = {"entity": entity, "error_code": 0}
            try:
                if [each.entity_type for each in entry.entity] != [CLIENT_ID]:
                    raise RequestError("only client ids have quotas here", code=ErrorCode.invalid_request)
                changes = {change.key: None if change.remove else change.value for change in entry.ops}
                name = entry.entity[0].entity_name
                await self.quotas.alter(name, changes, validate_only=request.body.validate_only)
            except RequestError as error:
                answer.update(error_code=error.code, error_message=str(error))
            except OSError as error:
                answer.update(
                    error_code=int(ErrorCode.kafka_storage_error), error_message=f"the disk refused: {error}"
                )
            answers.append(answer)
        return {"entries": answers}


def _matches(component: Any, client_id: str | None) -> bool:
    if component.match_type == ANY:
        return True
    return bool(client_id == (component.match if component.match_type == EXACT else None))
