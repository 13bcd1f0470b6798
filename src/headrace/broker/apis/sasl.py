"""Logging in: SASL's messages, in requests of their own or as bare tokens."""

import asyncio
import dataclasses
import logging
from typing import Any

from headrace.broker.access import Authority, ClientSession, RefusedError
from headrace.broker.apis.answers import Reply
from headrace.wire import ErrorCode, Frame, Request

__all__ = ["FAILURE_DELAY_S", "SaslApis"]

logger = logging.getLogger(__name__)

FAILURE_DELAY_S = 0.5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SaslApis:
    """Logins of clients."""

    access: Authority

    async def handshake(self, request: Request) -> dict[str, Any]:
        """Takes the mechanism if it is offered on this connection, and says which are.

        A client that is known by its certificate may log in as another user, once.
        """
        session: ClientSession | None = request.session
        if session is None or session.logged_in:
            return {"error_code": int(ErrorCode.illegal_sasl_state)}
        mechanisms = list(session.login.mechanisms)
        if not session.login.choose(request.body.mechanism):
            return {"error_code": int(ErrorCode.unsupported_sasl_mechanism), "mechanisms": mechanisms}
        session.forget()
        session.raw_tokens = request.api_version == 0
        return {"mechanisms": mechanisms}

    async def authenticate(self, request: Request) -> dict[str, Any]:
        """One message of the login; a failure is answered after a moment, and ends the connection."""
        session: ClientSession | None = request.session
        if session is None or session.identified or not session.login.chosen:
            return {
                "error_code": int(ErrorCode.illegal_sasl_state),
                "error_message": "no login is under way; it begins with a SaslHandshake",
            }
        try:
            step = await self.access.step(session, bytes(request.body.auth_bytes))
        except RefusedError as error:
            await _refuse(session, error)
            return {
                "error_code": int(ErrorCode.sasl_authentication_failed),
                "error_message": f"login with {session.login.chosen} failed: {error}",
            }
        return {"auth_bytes": step.message}

    async def raw_token(self, session: ClientSession, token: bytearray) -> Reply:
        """A message of a login as version 0 of the handshake has it: no request around it."""
        try:
            step = await self.access.step(session, bytes(token))
        except RefusedError as error:
            await _refuse(session, error)
            return Reply(Frame())
        frame = Frame(len(step.message).to_bytes(4, "big"))
        frame += step.message
        return Reply(frame)


async def _refuse(session: ClientSession, error: RefusedError) -> None:
    session.refused = True
    logger.info("login from %s with %s failed: %s", session.host, session.login.chosen, error)
    await asyncio.sleep(FAILURE_DELAY_S)  # of this connection only; guessing is to take time
