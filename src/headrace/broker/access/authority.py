"""The broker's side of access: sessions for connections, logins, changes made durable."""

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from headrace.broker.access.acls import AclIndex
from headrace.broker.access.login import PLAIN, Login, Step, offered
from headrace.broker.access.session import Rules, Session
from headrace.broker.access.state import AccessState
from headrace.broker.access.store import AccessStore
from headrace.broker.access.tls import principal_of
from headrace.storage import Disk

__all__ = ["Authority"]


class Authority:
    """Users and permissions of one broker. Event loop only.

    `enforced` says whether clients must say who they are; then everything is
    denied that no entry allows. Where it is not, everybody may do everything and
    there are no sessions.
    """

    def __init__(self, *, enforced: bool, super_users: frozenset[str]) -> None:
        self.enforced = enforced
        self._rules = Rules(AclIndex(()), super_users)
        self._changing = asyncio.Lock()
        # Deriving keys from passwords may not take more than one core, whoever knocks.
        self._deriving = ThreadPoolExecutor(1, "headrace-login")
        self._store: AccessStore
        self.state: AccessState

    async def load(self, directory: Path, disk: Disk | None) -> None:
        """Takes what is on disk; raises CorruptionError."""
        self._store = AccessStore(directory, disk)
        self._take(await self._in_thread(self._store.load))

    def close(self) -> None:
        self._deriving.shutdown(cancel_futures=True)

    def _in_thread(self, call: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        return asyncio.get_running_loop().run_in_executor(self._deriving, call, *args)

    def _take(self, state: AccessState) -> None:
        self.state = state
        self._rules.replace(AclIndex(state.acls))

    async def change(self, make: Callable[[AccessState], AccessState]) -> None:
        """Replaces the state by what is made of it, once that is on disk; raises DiskError."""
        async with self._changing:
            made = make(self.state)
            if made != self.state:
                await self._in_thread(self._store.save, made)
                self._take(made)

    # --- connections --------------------------------------------------------------------------

    def session(self, host: str, transport: asyncio.BaseTransport) -> Session | None:
        """A new connection's session; None where nobody needs one.

        A client with a verified certificate is known at once; any other must log in.
        """
        if not self.enforced:
            return None
        encrypted = transport.get_extra_info("ssl_object") is not None
        certificate = transport.get_extra_info("peercert")
        return Session(
            self._rules,
            host=host,
            login=Login(offered(host, encrypted=encrypted), _nonce),
            principal=principal_of(certificate) if certificate else None,
        )

    async def step(self, session: Session, token: bytes) -> Step:
        """One message of a login; raises RefusedError. Sets the session's principal at its end."""
        if session.login.chosen == PLAIN:
            step: Step = await self._in_thread(session.login.step, self.state, token)
        else:
            step = session.login.step(self.state, token)
        if step.user is not None:
            session.login.check_still_held(self.state)  # from here on `Broker.expel` finds the connection
            session.principal = f"User:{step.user}"
        return step


def _nonce() -> str:
    return secrets.token_urlsafe(24)
