"""The SASL dialogue of one connection: which mechanism, then its messages, then a user or a refusal.

A pure state machine but for randomness, which comes in as an argument. A step of
PLAIN costs some milliseconds of processor time (it derives a key from the
password, whether or not the user exists), so the shell runs steps on a thread.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from headrace.addresses import is_loopback
from headrace.broker.access.scram import (
    Credential,
    Mechanism,
    RefusedError,
    ScramExchange,
    decoy,
    is_password,
)
from headrace.broker.access.state import AccessState

__all__ = ["MOST_SASL_BYTES", "PLAIN", "Login", "Step", "offered"]

PLAIN = "PLAIN"
SCRAM = {mechanism.sasl_name: mechanism for mechanism in (Mechanism.SCRAM_SHA_512, Mechanism.SCRAM_SHA_256)}
MOST_SASL_BYTES = 16 * 1024


def offered(client_host: str, *, encrypted: bool) -> tuple[str, ...]:
    """The mechanisms of a connection; PLAIN, which sends the password, only where nobody can listen."""
    return (*SCRAM, PLAIN) if encrypted or is_loopback(client_host) else tuple(SCRAM)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to send the client, and who it is once that is known."""

    message: bytes = b""
    user: str | None = None


class Login:
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

    def step(self, state: AccessState, token: bytes) -> Step:
        """The answer to one message of the client; raises RefusedError."""
        if len(token) > MOST_SASL_BYTES:
            raise RefusedError(f"a message of more than {MOST_SASL_BYTES} bytes")
        if self._mechanism == PLAIN:
            self._user = _plain(state, token)
            self._held = state.users[self._user]
            return Step(user=self._user)
        if self._exchange is None:
            return self._begin(state, token)
        message = self._exchange.final(token)
        if SCRAM[self._mechanism] not in self._held:  # no proof fits a decoy, but nothing should hang on that
            raise RefusedError("wrong user or password")
        return Step(message=message, user=self._user)

    def check_still_held(self, state: AccessState) -> None:
        """Raises RefusedError if the user was removed or given another password while the login went on."""
        if state.users.get(self._user) != self._held:
            raise RefusedError("the user was changed meanwhile")

    def _begin(self, state: AccessState, token: bytes) -> Step:
        mechanism = SCRAM[self._mechanism]
        exchange = ScramExchange(mechanism, self._nonce())
        self._user = exchange.begin(token)
        self._held = state.users.get(self._user, {})
        invented = decoy(mechanism, self._user, state.decoy_secret)
        self._exchange = exchange
        return Step(message=exchange.challenge(self._held.get(mechanism, invented)))


def _plain(state: AccessState, token: bytes) -> str:
    """The user. RFC 4616: whom to act for (nobody else), who it is, the password."""
    try:
        acting_for, user, password = bytes(token).decode().split("\0")
    except ValueError:
        raise RefusedError("not a message of PLAIN") from None
    if acting_for not in ("", user):
        raise RefusedError("acting for somebody else is not offered")
    known = user in state.users
    if not is_password(_credential(state, user), password) or not known:
        raise RefusedError("wrong user or password")
    return user


def _credential(state: AccessState, user: str) -> Credential:
    """One of the user's, or one that is made up."""
    credentials = state.users.get(user, {})
    for mechanism in (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512):
        if mechanism in credentials:
            return credentials[mechanism]
    return decoy(Mechanism.SCRAM_SHA_256, user, state.decoy_secret)
