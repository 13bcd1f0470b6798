"""The broker's side of access: sessions for connections, logins, changes made durable."""

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from headrace.broker.access.acls import AclIndex, Operation, Resource
from headrace.broker.access.login import PLAIN, LoginStep, Password, SaslLogin, offered
from headrace.broker.access.password_checks import PasswordChecks, ProvenPasswords
from headrace.broker.access.session import ClientSession, Rules
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
        self._checks = PasswordChecks()
        self._proven = ProvenPasswords()
        self._saving = ThreadPoolExecutor(1, "headrace-access")  # which no guess holds up
        self._store: AccessStore
        self.state: AccessState

    async def load(self, directory: Path, disk: Disk | None) -> None:
        """Takes what is on disk; raises CorruptionError."""
        self._store = AccessStore(directory, disk)
        self._take(await self._in_thread(self._store.load))

    def close(self) -> None:
        self._checks.close()
        self._saving.shutdown(cancel_futures=True)

    def _in_thread(self, call: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        return asyncio.get_running_loop().run_in_executor(self._saving, call, *args)

    def _take(self, state: AccessState) -> None:
        self.state = state
        self._rules.replace(AclIndex(state.acls))
        self._proven.keep_only(state.users)

    async def change(self, make: Callable[[AccessState], AccessState]) -> None:
        """Replaces the state by what is made of it, once that is on disk; raises DiskError."""
        async with self._changing:
            made = make(self.state)
            if made != self.state:
                await self._in_thread(self._store.save, made)
                self._take(made)

    @property
    def generation(self) -> int:
        """Grows with every change of the permissions."""
        return self._rules.generation

    def topics_seen(self, names: frozenset[str]) -> Callable[[str | None, str], frozenset[str]] | None:
        """Which of the topics a user at a host may know of, as long as permissions stay as they are.

        For whom no connection is at hand to ask: the host is written as groups write it, "/10.0.0.7".
        None where everybody may know of all.
        """
        if not self.enforced:
            return None
        rules, hosts = self._rules, self._rules.index.hosts

        @cache
        def seen(user: str, host: str) -> frozenset[str]:
            wanted = Operation.DESCRIBE, Resource.TOPIC
            return frozenset(name for name in names if rules.allows(user, host, *wanted, name))

        def seen_by(user: str | None, host: str) -> frozenset[str]:
            host = host.removeprefix("/")
            # All hosts that no entry names are alike: what there is to remember is by user.
            return frozenset() if user is None else seen(user, host if host in hosts else "")

        return seen_by

    # --- connections --------------------------------------------------------------------------

    def session(self, host: str, transport: asyncio.BaseTransport) -> ClientSession | None:
        """A new connection's session; None where nobody needs one.

        A client with a verified certificate is known at once; any other must log in.
        """
        if not self.enforced:
            return None
        encrypted = transport.get_extra_info("ssl_object") is not None
        certificate = transport.get_extra_info("peercert")
        return ClientSession(
            self._rules,
            host=host,
            login=SaslLogin(offered(host, encrypted=encrypted), _nonce),
            principal=principal_of(certificate) if certificate else None,
        )

    def on_behalf_of(self, user: str | None, host: str) -> ClientSession:
        """A session for what is done later for a user, where no connection is at hand; `host` as above."""
        host = host.removeprefix("/")
        return ClientSession(self._rules, host=host, login=SaslLogin((), _nonce), principal=user)

    async def step(self, session: ClientSession, token: bytes) -> LoginStep:
        """One message of a login; raises RefusedError, or CrowdedError if too many wait.

        Sets the session's principal at its end.
        """
        if session.login.chosen == PLAIN:
            step = await self._check(session, Password.of(token))
        else:
            step = session.login.step(self.state, token)
        if step.user is not None:
            session.login.check_still_held(self.state)  # from here on `Broker.expel` finds the connection
            session.principal = f"User:{step.user}"
        return step

    async def _check(self, session: ClientSession, claimed: Password) -> LoginStep:
        state = self.state
        is_right = self._is_proven(state, claimed) or await self._checks.run(
            lambda: self._is_proven(state, claimed) or claimed.is_right(state),
            address=session.host,
            name=claimed.user,
        )
        step = session.login.checked(state, claimed, is_right=is_right)
        held = state.users[claimed.user]
        if self.state.users.get(claimed.user) == held:
            self._proven.note(claimed.user, held, claimed.password)
        return step

    def _is_proven(self, state: AccessState, claimed: Password) -> bool:
        held = state.users.get(claimed.user, {})
        return self._proven.knows(claimed.user, held, claimed.password)


def _nonce() -> str:
    return secrets.token_urlsafe(24)
