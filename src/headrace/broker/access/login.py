"""The SASL dialogue of one connection: which mechanism, then its messages, then a user or a refusal.

A pure state machine but for randomness, which comes in as an argument. To check a
password (`Password`) costs some milliseconds of processor time (a key is derived from
it, whether or not the user exists), so the shell does it on a thread.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headrace.addresses import is_loopback
from headrace.broker.access.decoys import checked_by_password
from headrace.broker.access.scram import Credential, Mechanism, RefusedError, ScramExchange, is_password
from headrace.broker.access.state import AccessState

__all__ = ["MOST_SASL_BYTES", "PLAIN", "LoginStep", "Password", "SaslLogin", "offered"]

PLAIN = "PLAIN"
SCRAM = {mechanism.sasl_name: mechanism for mechanism in (Mechanism.SCRAM_SHA_512, Mechanism.SCRAM_SHA_256)}
MOST_SASL_BYTES = 16 * 1024


def offered(client_host: str, *, encrypted: bool) -> tuple[str, ...]:
    """The mechanisms of a connection; PLAIN, which sends the password, only where nobody can listen."""
    return (*SCRAM, PLAIN) if encrypted or is_loopback(client_host) else tuple(SCRAM)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoginStep:
    """What to send the client, and who it is once that is known."""

    message: bytes = b""
    user: str | None = None


class Password(NamedTuple):
    """What somebody claims by PLAIN."""

    user: str
    password: str

    @classmethod
    def of(cls, token: bytes) -> "Password":
        """RFC 4616: whom to act for (nobody else), who it is, the password; raises RefusedError."""
        if len(token) > MOST_SASL_BYTES:
            raise RefusedError(f"a message of more than {MOST_SASL_BYTES} bytes")
        try:
            acting_for, user, password = bytes(token).decode().split("\0")
        except ValueError:
            raise RefusedError("not a message of PLAIN") from None
        if acting_for not in ("", user):
            raise RefusedError("acting for somebody else is not offered")
        return cls(user, password)

    def is_right(self, state: AccessState) -> bool:
        """Whether it is the user's; as costly for one that does not exist."""
        held = checked_by_password(state.users.get(self.user, {}))
        against = held or state.decoys.for_password(self.user)
        return is_password(against, self.password) and held is not None


class SaslLogin:
    """One attempt: `choose` a mechanism, then `step` until a user comes out or RefusedError is raised."""

    def __init__(self, mechanisms: Sequence[str], nonce: Callable[[], str]) -> None:
        self.mechanisms = tuple(mechanisms)
        self._nonce = nonce
        self._mechanism = ""
        self._exchange: ScramExchange | None = None
        self._user = ""
        self._held: Mapping[Mechanism, Credential] = {}

    @property
    def chosen(self) -> str:
        """The mechanism, or nothing yet."""
        return self._mechanism

    def choose(self, mechanism: str) -> bool:
        """Takes a mechanism; False when it is not offered on this connection."""
        if mechanism not in self.mechanisms:
            return False
        self._mechanism = mechanism
        self._exchange = None
        return True

    def step(self, state: AccessState, token: bytes) -> LoginStep:
        """The answer to one message of the client; raises RefusedError."""
        if len(token) > MOST_SASL_BYTES:
            raise RefusedError(f"a message of more than {MOST_SASL_BYTES} bytes")
        if self._mechanism == PLAIN:
            claimed = Password.of(token)
            return self.checked(state, claimed, is_right=claimed.is_right(state))
        if self._exchange is None:
            return self._begin(state, token)
        message = self._exchange.final(token)
        if SCRAM[self._mechanism] not in self._held:  # no proof fits a decoy, but nothing should hang on that
            raise RefusedError("wrong user or password")
        return LoginStep(message=message, user=self._user)

    def checked(self, state: AccessState, claimed: Password, *, is_right: bool) -> LoginStep:
        """The end of a login with a password that was checked; raises RefusedError."""
        self._user, self._held = claimed.user, state.users.get(claimed.user, {})
        if not is_right or not self._held:
            raise RefusedError("wrong user or password")
        return LoginStep(user=self._user)

    def check_still_held(self, state: AccessState) -> None:
        """Raises RefusedError if the user was removed or given another password while the login went on."""
        if state.users.get(self._user) != self._held:
            raise RefusedError("the user was changed meanwhile")

    def _begin(self, state: AccessState, token: bytes) -> LoginStep:
        mechanism = SCRAM[self._mechanism]
        exchange = ScramExchange(mechanism, self._nonce())
        self._user = exchange.begin(token)
        self._held = state.users.get(self._user, {})
        invented = state.decoys.credential(mechanism, self._user)
        self._exchange = exchange
        return LoginStep(message=exchange.challenge(self._held.get(mechanism, invented)))
