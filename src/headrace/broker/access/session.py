"""Who is at the other end of a connection, and what they may do: decisions, remembered."""

import logging

from headrace.broker.access.acls import CLUSTER_NAME, AclIndex, Operation, Resource, operations_on
from headrace.broker.access.login import SaslLogin

__all__ = ["ANONYMOUS", "ClientSession", "Rules", "is_allowed"]

logger = logging.getLogger(__name__)

ANONYMOUS = "User:ANONYMOUS"
MOST_REMEMBERED = 10_000


def is_allowed(session: "ClientSession | None", operation: int, resource: int, name: str) -> bool:
    """Whether the caller may do this now; without a session everybody may do everything.

    For handlers of what outlives the moment in which its guard decided: a session that
    remembers topics, a request that waits.
    """
    return session is None or session.may(operation, resource, name)


class Rules:
    """The permissions in force. Replaced at once for everybody, also on open connections."""

    def __init__(self, index: AclIndex, super_users: frozenset[str]) -> None:
        self.index = index
        self.super_users = super_users
        self.generation = 0

    def replace(self, index: AclIndex) -> None:
        self.index = index
        self.generation += 1

    def allows(self, principal: str, host: str, operation: int, resource: int, name: str) -> bool:
        """The decision: a superuser may do everything, everybody else what an entry allows."""
        return principal in self.super_users or self.index.allows(principal, host, operation, resource, name)


class ClientSession:
    """One connection's identity. Asked on every request; a decision is made once per change of the rules."""

    def __init__(
        self,
        rules: Rules,
        *,
        host: str,
        login: SaslLogin,
        principal: str | None = None,
    ) -> None:
        self._rules = rules
        self._remembered: dict[tuple[int, int, str], bool] = {}
        self._generation = rules.generation
        self.host = host
        self.login = login
        self.principal = principal
        self.refused = False  # a login failed: the connection is to end
        self.raw_tokens = False  # SaslHandshake version 0: tokens come without a request around them

    @property
    def identified(self) -> bool:
        return self.principal is not None

    @property
    def logged_in(self) -> bool:
        """Whether a login has told who it is, and not a certificate alone."""
        return self.identified and bool(self.login.chosen)

    def forget(self) -> None:
        """A login begins: until its end nobody is there, whatever a certificate said."""
        self.principal = None
        self._remembered.clear()

    @property
    def is_super(self) -> bool:
        return self.principal in self._rules.super_users

    def may(self, operation: int, resource: int, name: str) -> bool:
        """Whether the operation is allowed; a refusal is noted in the broker's log once."""
        return self._decide(operation, resource, name, note=True)

    def sees(self, operation: int, resource: int, name: str) -> bool:
        """Like `may`, for what is silently left out of a list."""
        return self._decide(operation, resource, name, note=False)

    def may_create(self, topic: str, *, note: bool = True) -> bool:
        """Whether a topic of the name may be created: on the cluster, or on the topic."""
        return self.sees(Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME) or self._decide(
            Operation.CREATE, Resource.TOPIC, topic, note=note
        )

    def may_on_cluster(self, operation: int) -> bool:
        return self.may(operation, Resource.CLUSTER, CLUSTER_NAME)

    def may_somewhere(self, operation: int, resource: int) -> bool:
        """Whether the operation is allowed on some resource of the type."""
        return self.is_super or self._rules.index.allows_somewhere(
            self.principal or ANONYMOUS, self.host, operation, resource
        )

    def allowed_bits(self, resource: int, name: str) -> int:
        """The operations allowed on a resource, as the bit field of "authorized operations"."""
        return sum(1 << each for each in operations_on(resource) if self.sees(each, resource, name))

    def _decide(self, operation: int, resource: int, name: str, *, note: bool) -> bool:
        if self._generation != self._rules.generation or len(self._remembered) > MOST_REMEMBERED:
            self._remembered.clear()
            self._generation = self._rules.generation
        key = (operation, resource, name)
        known = self._remembered.get(key)
        if known is None:
            known = self._remembered[key] = self._allowed(operation, resource, name)
            if note and not known:
                self._note(operation, resource, name)
        return known

    def _allowed(self, operation: int, resource: int, name: str) -> bool:
        return self._rules.allows(self.principal or ANONYMOUS, self.host, operation, resource, name)

    def _note(self, operation: int, resource: int, name: str) -> None:
        what = f"{Operation(operation).name.lower()} on {Resource(resource).name.lower()} {name!r}"
        logger.info("denied to %s from %s: %s", self.principal, self.host, what)
