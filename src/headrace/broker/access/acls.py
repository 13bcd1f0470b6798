"""Access control entries and the decision they lead to: Kafka's model, pure.

An entry allows or denies a principal, from a host, an operation on the
resources that its pattern names. A denial wins over any permission; what no
entry allows is denied.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from enum import IntEnum

__all__ = [
    "CLUSTER_NAME",
    "Acl",
    "AclFilter",
    "AclIndex",
    "Operation",
    "Pattern",
    "Permission",
    "Resource",
    "problem_with",
]

CLUSTER_NAME = "kafka-cluster"
EVERY_NAME = "*"
EVERYONE = "User:*"
EVERY_HOST = "*"
LONGEST_NAME = 1024


class Resource(IntEnum):
    """What can be protected."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    USER = 7


class Pattern(IntEnum):
    """How an entry names resources; ANY and MATCH only in filters."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What can be done to a resource."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Permission(IntEnum):
    """What an entry says."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_IMPLIED_BY = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
_OPERATIONS = {
    Resource.TOPIC: {
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    },
    Resource.GROUP: {
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    },
    Resource.CLUSTER: {
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    },
    Resource.TRANSACTIONAL_ID: {Operation.WRITE, Operation.DESCRIBE},
    Resource.USER: set[Operation](),  # delegation tokens, which are not served
}


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One entry. The numbers are Kafka's; `principal` is such as "User:alice"."""

    resource: int
    pattern: int
    name: str
    principal: str
    host: str
    operation: int
    permission: int

    def names(self, name: str) -> bool:
        """Whether the pattern covers a resource of the entry's type."""
        if self.pattern == Pattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, EVERY_NAME)

    def concerns(self, principal: str, host: str) -> bool:
        """Whether the entry is about this principal at this host."""
        return self.principal in (principal, EVERYONE) and self.host in (host, EVERY_HOST)


def operations_on(resource: int) -> set[Operation]:
    """The operations that mean something for a type of resource."""
    return _OPERATIONS[Resource(resource)]


def problem_with(acl: Acl) -> str | None:
    """Why an entry cannot be stored, in words; None when nothing speaks against it."""
    if acl.resource not in _OPERATIONS or acl.resource == Resource.USER:
        return f"resource type {acl.resource} has no entries; use topic, group, cluster, transactional id"
    if acl.pattern not in (Pattern.LITERAL, Pattern.PREFIXED):
        return f"pattern type {acl.pattern} is not literal (3) or prefixed (4)"
    if acl.operation != Operation.ALL and acl.operation not in _OPERATIONS[Resource(acl.resource)]:
        return f"operation {acl.operation} does not exist for {Resource(acl.resource).name.lower()}"
    if acl.permission not in (Permission.ALLOW, Permission.DENY):
        return f"permission {acl.permission} is neither allow (3) nor deny (2)"
    if acl.resource == Resource.CLUSTER and acl.name != CLUSTER_NAME:
        return f"the cluster's resource is named {CLUSTER_NAME}"
    return _problem_with_texts(acl)


def _problem_with_texts(acl: Acl) -> str | None:
    kind, colon, who = acl.principal.partition(":")
    if kind != "User" or not colon or not who:
        return f"principal {acl.principal!r} is not of the form User:NAME"
    if not acl.name or not acl.host:
        return "an entry needs a resource name and a host; * stands for every one"
    if max(len(acl.name), len(acl.principal), len(acl.host)) > LONGEST_NAME:
        return f"names of more than {LONGEST_NAME} characters are not kept"
    return None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Which entries are meant; None and ANY leave a field open."""

    resource: int = Resource.ANY
    pattern: int = Pattern.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource in (Resource.ANY, acl.resource)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern == Pattern.MATCH:  # entries that have a say in the named resource
            return self.name is None or acl.names(self.name)
        return self.pattern in (Pattern.ANY, acl.pattern) and self.name in (None, acl.name)


class AclIndex:
    """A set of entries, ready for decisions. Never changes; a change makes a new one."""

    def __init__(self, acls: Iterable[Acl]) -> None:
        self.acls = frozenset(acls)
        self.hosts = frozenset(acl.host for acl in self.acls)
        self._literal: dict[tuple[int, str], list[Acl]] = {}
        self._prefixed: dict[int, list[Acl]] = {}
        for acl in self.acls:
            if acl.pattern == Pattern.PREFIXED:
                self._prefixed.setdefault(acl.resource, []).append(acl)
            else:
                self._literal.setdefault((acl.resource, acl.name), []).append(acl)

    def allows(self, principal: str, host: str, operation: int, resource: int, name: str) -> bool:
        """The decision: denied by any denial, else allowed by any permission, else denied."""
        concerned = [acl for acl in self._about(resource, name) if acl.concerns(principal, host)]
        if any(_denies(acl, operation) for acl in concerned):
            return False
        return any(_allows(acl, operation) for acl in concerned)

    def _about(self, resource: int, name: str) -> Iterator[Acl]:
        yield from self._literal.get((resource, name), ())
        if name != EVERY_NAME:
            yield from self._literal.get((resource, EVERY_NAME), ())
        for acl in self._prefixed.get(resource, ()):
            if name.startswith(acl.name):
                yield acl

    def allows_somewhere(self, principal: str, host: str, operation: int, resource: int) -> bool:
        """Whether there can be a resource of the type on which the operation is allowed."""
        concerned = [acl for acl in self.acls if acl.resource == resource and acl.concerns(principal, host)]
        denials = [acl for acl in concerned if _denies(acl, operation)]
        return any(
            _allows(acl, operation) and not any(_covers(denial, acl) for denial in denials)
            for acl in concerned
        )


def _denies(acl: Acl, operation: int) -> bool:
    return acl.permission == Permission.DENY and acl.operation in (operation, Operation.ALL)


def _allows(acl: Acl, operation: int) -> bool:
    if acl.permission != Permission.ALLOW:
        return False
    wanted = Operation(operation)
    return acl.operation in (wanted, Operation.ALL) or acl.operation in _IMPLIED_BY.get(wanted, ())


def _covers(denial: Acl, permission: Acl) -> bool:
    """Whether a denial takes back all that a permission grants."""
    if denial.pattern == Pattern.LITERAL and denial.name == EVERY_NAME:
        return True
    if permission.pattern == Pattern.LITERAL and permission.name == EVERY_NAME:
        return False
    if denial.pattern == Pattern.PREFIXED:
        return permission.name.startswith(denial.name)
    return permission.pattern == Pattern.LITERAL and denial.name == permission.name
