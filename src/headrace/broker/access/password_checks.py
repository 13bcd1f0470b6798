"""Checking passwords, which costs processor time, for many at once: nobody's crowd holds up somebody else.

Theory of operation. Keys are derived on a thread of their own, one at a time. A login that comes
meanwhile waits in a line (`WaitingLine`), and next is not who came first but who has the fewest
others beside them, from their address and at their name; among equals the latest. So a
thousand guesses, from one address or at one name, cost a login from elsewhere the one
derivation that is under way; and where a login cannot be told from the guesses, it is
better to serve the latest than to serve everybody too late. The line is bounded: when it
is full, the oldest of the largest crowd has to go (`CrowdedError`) and may come back.

A password that was right once is known again without deriving anything (`ProvenPasswords`).
"""

import asyncio
import hmac
import ipaddress
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, NamedTuple, TypeVar

from headrace.broker.access.scram import Credential, Mechanism

__all__ = ["CrowdedError", "PasswordChecks", "ProvenPasswords", "WaitingLine"]

T = TypeVar("T")
Held = Mapping[Mechanism, Credential]

MOST_WAITING = 256


class CrowdedError(Exception):
    """Too many wait for a login; nothing was checked. To be told by an end of the connection: come back."""


class _Waiting(NamedTuple):
    what: Any
    address: str
    name: str


class WaitingLine(Generic[T]):
    """Those who wait, at most so many. Pure."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = most
        self._waiting: list[_Waiting] = []  # the oldest first
        self._at: Counter[str] = Counter()
        self._as: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, what: T, address: str, name: str) -> T | None:
        """Takes one in; the one who has to go for it, if there are too many."""
        self._waiting.append(_Waiting(what, _network(address), name))
        self._at[self._waiting[-1].address] += 1
        self._as[name] += 1
        if len(self._waiting) <= self._most:
            return None
        crowds = self._crowds()
        return self._leave(crowds.index(max(crowds)))

    def take(self) -> T | None:
        """Who is next: of the smallest crowd the latest."""
        if not self._waiting:
            return None
        crowds = self._crowds()[::-1]
        return self._leave(len(crowds) - 1 - crowds.index(min(crowds)))

    def remove(self, what: T) -> None:
        """One who waits no more."""
        for place, each in enumerate(self._waiting):
            if each.what is what:
                self._leave(place)
                return

    def _crowds(self) -> list[int]:
        """How many there are beside each who waits, the oldest first."""
        at, named = self._at, self._as
        return [at[address] + named[name] for _, address, name in self._waiting]

    def _leave(self, place: int) -> T:
        gone = self._waiting.pop(place)
        for counts, key in ((self._at, gone.address), (self._as, gone.name)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]
        what: T = gone.what
        return what


def _network(address: str) -> str:
    """The address, or the network of which one customer has all the addresses."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, 64), strict=False))


class PasswordChecks:
    """Runs checks on one thread, in the order of its line. Event loop only."""

    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        # Deriving keys from passwords may not take more than one core, however many knock.
        self._thread = ThreadPoolExecutor(1, "headrace-login")
        self._line: WaitingLine[asyncio.Future[None]] = WaitingLine(most_waiting)
        self._busy = False

    async def run(self, check: Callable[[], T], *, address: str, name: str) -> T:
        """What the check returns or raises, once it had its turn; CrowdedError if it gets none."""
        if self._busy:
            await self._wait_turn(address, name)
        self._busy = True
        work = asyncio.get_running_loop().run_in_executor(self._thread, check)
        work.add_done_callback(self._done)
        return await asyncio.shield(work)  # the thread is busy until it is done, even if the client leaves

    async def _wait_turn(self, address: str, name: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        gone = self._line.add(turn, address, name)
        if gone is not None and not gone.done():
            gone.set_exception(CrowdedError("too many wait for a login; try again"))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._line.remove(turn)
            else:  # it was its turn, or it had to go: in the same moment its client left
                self._pass_on(turn)
            raise

    def _pass_on(self, turn: "asyncio.Future[None]") -> None:
        if turn.exception() is None:
            self._next()

    def _done(self, work: "asyncio.Future[Any]") -> None:
        if not work.cancelled():
            work.exception()  # which nobody may have waited for
        self._next()

    def _next(self) -> None:
        turn = self._line.take()
        while turn is not None and turn.done():  # its client left in this moment
            turn = self._line.take()
        self._busy = turn is not None
        if turn is not None:
            turn.set_result(None)

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)


class ProvenPasswords:
    """Passwords that were right: one a user, in memory only, as hashes under a key of this process.

    Who reconnects is then let in at once, however many guess meanwhile. A wrong password
    costs what it costs.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._proven: dict[str, tuple[Held, bytes]] = {}

    def __len__(self) -> int:
        return len(self._proven)

    def knows(self, user: str, held: Held, password: str) -> bool:
        """Whether this was the user's password, who has had no other since."""
        digest = self._digest(user, password)
        known = self._proven.get(user)
        return known is not None and known[0] == held and hmac.compare_digest(known[1], digest)

    def note(self, user: str, held: Held, password: str) -> None:
        self._proven[user] = held, self._digest(user, password)

    def keep_only(self, users: Mapping[str, Held]) -> None:
        """Forgets users that are gone or have another password."""
        for user in [user for user, (held, _) in tuple(self._proven.items()) if users.get(user) != held]:
            del self._proven[user]

    def _digest(self, user: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{len(user)}:{user}{password}".encode(), "sha256")
