"""The administration of users and permissions."""

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from typing import Any

from headrace.broker.access import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    AccessState,
    Acl,
    AclFilter,
    Authority,
    Credential,
    Mechanism,
    credential_from_salted,
    problem_with,
)
from headrace.errors import DiskError, RequestError
from headrace.wire import ErrorCode, Request

__all__ = ["AccessApis"]

logger = logging.getLogger(__name__)

FAILURE_DELAY_S = 0.5
MOST_ACLS = 100_000
LONGEST_USER_NAME = 256
OFF = {
    "error_code": int(ErrorCode.security_disabled),
    "error_message": "permissions are off; start the broker with --authenticate",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AccessApis:
    """Users and permissions; `expel` closes the connections of a principal."""

    access: Authority
    expel: Callable[[str], None]

    # --- users ------------------------------------------------------------------------------------

    async def describe_user_scram_credentials(self, request: Request) -> dict[str, Any]:
        """Which mechanisms a user can log in with; of the secrets only the iterations."""
        users = self.access.state.users
        asked = Counter(user.name for user in request.body.users or ()) or Counter(sorted(users))
        return {"results": [_described(name, count, users.get(name)) for name, count in asked.items()]}

    async def alter_user_scram_credentials(self, request: Request) -> dict[str, Any]:
        """Adds, changes and removes users; one without a credential left is gone, and disconnected."""
        body = request.body
        changes = [*body.deletions, *body.upsertions]
        counts = Counter((each.name, each.mechanism) for each in changes)
        problems: dict[str, dict[str, Any]] = {}
        for each in changes:
            try:
                _check_change(self.access.state, each, counts)
            except RequestError as error:
                problems.setdefault(each.name, _user_problem(each.name, ErrorCode(error.code), str(error)))
        try:
            await self.access.change(lambda state: _changed(state, body, problems.keys()))
        except DiskError as error:
            problems = {
                each.name: _user_problem(each.name, ErrorCode.kafka_storage_error, str(error))
                for each in changes
            }
        for name in {each.name for each in body.deletions} - self.access.state.users.keys() - problems.keys():
            self.expel(f"User:{name}")
        names = dict.fromkeys(each.name for each in changes)
        return {"results": [problems.get(name, {"user": name}) for name in names]}

    # --- permissions ------------------------------------------------------------------------------

    async def describe_acls(self, request: Request) -> dict[str, Any]:
        """The entries that a filter means, resource by resource."""
        if not self.access.enforced:
            return OFF
        try:
            wanted = _filter(request.body)
        except RequestError as error:
            return _problem(error)
        found = sorted(filter(wanted.matches, self.access.state.acls))
        by_resource = groupby(found, lambda acl: (acl.resource, acl.name, acl.pattern))
        return {
            "resources": [
                {
                    "resource_type": resource,
                    "resource_name": name,
                    "pattern_type": pattern,
                    "acls": [_entry(acl) for acl in acls],
                }
                for (resource, name, pattern), acls in by_resource
            ]
        }

    async def create_acls(self, request: Request) -> dict[str, Any]:
        """Adds entries; they count on open connections too, from their next request on."""
        asked = [_acl(each) for each in request.body.creations]
        if not self.access.enforced:
            return {"results": [dict(OFF) for _ in asked]}
        problems = [problem_with(acl) for acl in asked]
        valid = frozenset(acl for acl, problem in zip(asked, problems, strict=True) if problem is None)
        if len(self.access.state.acls | valid) > MOST_ACLS:
            problems = [f"there would be more than {MOST_ACLS} entries"] * len(asked)
            valid = frozenset()
        try:
            await self.access.change(lambda state: state.with_acls(state.acls | valid))
        except DiskError as error:
            return {"results": [_disk_problem(error) for _ in asked]}
        code = int(ErrorCode.invalid_request)
        return {
            "results": [
                {} if each is None else {"error_code": code, "error_message": each} for each in problems
            ]
        }

    async def delete_acls(self, request: Request) -> dict[str, Any]:
        """Removes the entries that each filter means, and names them."""
        if not self.access.enforced:
            return {"filter_results": [dict(OFF) for _ in request.body.filters]}
        results: list[dict[str, Any]] = []
        going: set[Acl] = set()
        for given in request.body.filters:
            try:
                found = sorted(filter(_filter(given).matches, self.access.state.acls))
            except RequestError as error:
                results.append(_problem(error))
                continue
            going.update(found)
            results.append({"matching_acls": [_removed(acl) for acl in found]})
        try:
            await self.access.change(lambda state: state.with_acls(state.acls - going))
        except DiskError as error:
            results = [_disk_problem(error) for _ in results]
        return {"filter_results": results}


def _described(name: str, count: int, held: Any) -> dict[str, Any]:
    if count > 1:
        return _user_problem(name, ErrorCode.duplicate_resource, "the user is named more than once")
    if not held:
        return _user_problem(name, ErrorCode.resource_not_found, f"there is no user {name!r}")
    infos = [{"mechanism": int(each), "iterations": held[each].iterations} for each in sorted(held)]
    return {"user": name, "credential_infos": infos}


def _user_problem(name: str, code: ErrorCode, message: str) -> dict[str, Any]:
    return {"user": name, "error_code": int(code), "error_message": message}


def _check_change(state: AccessState, change: Any, counts: Counter[tuple[str, int]]) -> None:
    if counts[change.name, change.mechanism] > 1:
        raise RequestError("the credential is named more than once", code=ErrorCode.duplicate_resource)
    if change.mechanism not in list(Mechanism):
        raise RequestError(
            "the mechanism is not SCRAM-SHA-256 (1) or SCRAM-SHA-512 (2)",
            code=ErrorCode.unsupported_sasl_mechanism,
        )
    if not hasattr(change, "salt"):
        if Mechanism(change.mechanism) not in state.users.get(change.name, {}):
            raise RequestError(
                f"user {change.name!r} has no such credential", code=ErrorCode.resource_not_found
            )
        return
    _check_upsertion(change)


def _check_upsertion(change: Any) -> None:
    problem = ""
    if not 0 < len(change.name) <= LONGEST_USER_NAME or not change.name.isprintable():
        problem = f"a user's name has 1 to {LONGEST_USER_NAME} printable characters"
    elif not LEAST_ITERATIONS <= change.iterations <= MOST_ITERATIONS:
        problem = f"{change.iterations} iterations; use {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
    elif len(change.salted_password) != Mechanism(change.mechanism).key_bytes or not change.salt:
        problem = "the salt or the salted password does not have the mechanism's length"
    if problem:
        raise RequestError(problem, code=ErrorCode.unacceptable_credential)


def _changed(state: AccessState, body: Any, refused: Any) -> AccessState:
    for each in body.deletions:
        if each.name not in refused:
            state = state.without_credential(each.name, Mechanism(each.mechanism))
    for each in body.upsertions:
        if each.name not in refused:
            state = state.with_credential(each.name, _credential(each))
    return state


def _credential(change: Any) -> Credential:
    return credential_from_salted(
        Mechanism(change.mechanism), bytes(change.salted_password), bytes(change.salt), change.iterations
    )


def _entry(acl: Acl) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def _filter(given: Any) -> AclFilter:
    if 0 in (given.resource_type_filter, given.pattern_type_filter, given.operation, given.permission_type):
        raise RequestError(
            "a filter has an unknown (0) field; 1 stands for any", code=ErrorCode.invalid_request
        )
    return AclFilter(
        resource=given.resource_type_filter,
        pattern=given.pattern_type_filter,
        name=given.resource_name_filter,
        principal=given.principal_filter,
        host=given.host_filter,
        operation=given.operation,
        permission=given.permission_type,
    )


def _problem(error: RequestError) -> dict[str, Any]:
    return {"error_code": int(error.code), "error_message": str(error)}


def _acl(given: Any) -> Acl:
    return Acl(
        resource=given.resource_type,
        pattern=given.resource_pattern_type,
        name=given.resource_name,
        principal=given.principal,
        host=given.host,
        operation=given.operation,
        permission=given.permission_type,
    )


def _disk_problem(error: DiskError) -> dict[str, Any]:
    return {"error_code": int(ErrorCode.kafka_storage_error), "error_message": str(error)}


def _removed(acl: Acl) -> dict[str, Any]:
    return {
        "resource_type": acl.resource,
        "resource_name": acl.name,
        "pattern_type": acl.pattern,
        **_entry(acl),
    }
