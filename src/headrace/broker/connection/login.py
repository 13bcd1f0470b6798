"""A connection's login: until its client is known, only what is part of that is served."""

import asyncio
from collections.abc import Awaitable, Callable

from headrace.broker.access import ClientSession, CrowdedError
from headrace.broker.apis.answers import Reply
from headrace.broker.apis.sasl import FAILURE_DELAY_S
from headrace.broker.connection.fast_path import Work
from headrace.broker.connection.requests import Requests
from headrace.broker.connection.sending import Sender
from headrace.broker.connection.shared import Shared
from headrace.wire import Api, MalformedError, name_of

__all__ = ["LoginEnded", "wait_identified"]

BEFORE_LOGIN = (Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE)


class LoginEnded(Exception):  # noqa: N818 - the connection ends as it should
    """The login failed; `reason` is None if its client has its answer and is only to be let go."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(reason)
        self.reason = reason


async def wait_identified(
    shared: Shared,
    session: ClientSession,
    requests: Requests,
    sender: Sender,
    next_work: Callable[[], Awaitable[Work | None]],
) -> None:
    """Returns when the client is known, or has left; raises LoginEnded or MalformedError."""
    try:
        async with asyncio.timeout(shared.settings.receive_timeout_ms / 1000):
            while not session.identified:
                frame = await next_work()
                if not isinstance(frame, bytearray):
                    return
                try:
                    reply = await _step(shared, session, requests, frame)
                finally:
                    shared.memory.release_frame(frame)
                await sender.send_reply(reply)
                if session.refused:
                    raise LoginEnded(None)
    except TimeoutError:
        raise MalformedError("no login in time (receive_timeout_ms)") from None


async def _step(shared: Shared, session: ClientSession, requests: Requests, frame: bytearray) -> Reply:
    api_key = int.from_bytes(frame[:2], "big", signed=True)
    try:
        if session.raw_tokens:
            return await shared.sasl.raw_token(session, frame)
        if api_key in BEFORE_LOGIN:
            return await requests.answer(frame, api_key, int.from_bytes(frame[2:4], "big", signed=True))
    except CrowdedError as error:
        # Without an answer: clients take a refusal for final, and come back after this.
        await asyncio.sleep(FAILURE_DELAY_S)
        raise LoginEnded(str(error)) from None
    await asyncio.sleep(FAILURE_DELAY_S)  # or clients that know no better come back at once
    raise MalformedError(f"{name_of(api_key)} before login")
