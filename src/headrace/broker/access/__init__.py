"""Who may do what: identities, logins, permissions, and the guard of every API.

With access enforced a client is known before it is served (SASL, or a
certificate), and may do only what an entry allows: what is not allowed never
reaches a handler. Passwords are kept as SCRAM's salted keys, in one private
file; they appear in no log and no answer. Decisions (`acls`, `scram`, `decoys`, `login`,
`state`, `guards`) are pure; `store`, `tls`, `password_checks` and `authority` do the I/O. Without
access enforced a connection has no session, and nothing here runs.
"""

from headrace.broker.access.acls import Acl, AclFilter, Operation, Resource, operations_on, problem_with
from headrace.broker.access.authority import Authority
from headrace.broker.access.guards import GUARDS, GuardedRequest, Ruling
from headrace.broker.access.login import MOST_SASL_BYTES
from headrace.broker.access.offline import add_user, list_users, remove_user
from headrace.broker.access.password_checks import CrowdedError
from headrace.broker.access.scram import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    Credential,
    Mechanism,
    RefusedError,
    credential_from_salted,
)
from headrace.broker.access.session import ClientSession, is_allowed
from headrace.broker.access.state import AccessState
from headrace.broker.access.tls import server_context

__all__ = [
    "GUARDS",
    "LEAST_ITERATIONS",
    "MOST_ITERATIONS",
    "MOST_SASL_BYTES",
    "AccessState",
    "Acl",
    "AclFilter",
    "Authority",
    "ClientSession",
    "Credential",
    "CrowdedError",
    "GuardedRequest",
    "Mechanism",
    "Operation",
    "RefusedError",
    "Resource",
    "Ruling",
    "add_user",
    "credential_from_salted",
    "is_allowed",
    "list_users",
    "operations_on",
    "problem_with",
    "remove_user",
    "server_context",
]
