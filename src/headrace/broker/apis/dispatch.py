"""From a request's bytes to its answer's: decode, let access decide, call the handler, encode.

What a caller may not do never reaches a handler: the API's guard (`access.guards`) takes it
out of the request and puts a refusal into the answer instead.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from headrace.broker.access import GUARDS, ClientSession, GuardedRequest, Ruling
from headrace.broker.apis.answers import Begun, DeferredReply, Reply
from headrace.broker.apis.handlers import Handler
from headrace.broker.apis.metadata import unsupported_version
from headrace.broker.apis.records import Attempt, Fetching, Produce
from headrace.broker.apis.versions import VERSIONS
from headrace.broker.limits import PRODUCER, Quotas, RequestMemory
from headrace.broker.log import Topics
from headrace.broker.metrics import Metrics
from headrace.wire import (
    Api,
    FetchShape,
    MalformedError,
    Request,
    decode_request,
    encode_response,
    name_of,
)

__all__ = ["Client", "Dispatcher", "correlation_id_of"]


class Client(Protocol):
    """The connection that a request came by."""

    number: int  # no other connection of the time has the same
    client_host: str
    local_address: tuple[str, int]
    session: ClientSession | None

    def mute(self, throttle_ms: int) -> None:
        """Has its next request wait for so long."""


class Dispatcher:
    """Serves requests of any API. Event loop only."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        produce: Produce,
        fetching: Fetching,
        *,
        topics: Topics,
        quotas: Quotas,
        memory: RequestMemory,
        metrics: Metrics,
        auto_create_topics: bool,
    ) -> None:
        self.produce = produce
        self._handlers = handlers
        self._fetching = fetching
        self._topics = topics
        self._quotas = quotas
        self._memory = memory
        self._metrics = metrics
        self._auto_create_topics = auto_create_topics

    # --- any request ------------------------------------------------------------------------------

    async def answer(self, client: Client, frame: bytearray, api_key: int, version: int) -> Reply:
        """The answer to any request but produce."""
        if version not in VERSIONS.get(api_key, ()):
            if api_key == Api.API_VERSIONS:
                return Reply(unsupported_version(correlation_id_of(frame)))
            raise MalformedError(f"{name_of(api_key)} v{version} is not served")
        request = _decoded(client, frame, api_key, version)
        if client.session is None:
            answer = await self._handlers[api_key](request)
        else:
            answer = await self._guarded(request)
        if isinstance(answer, Reply):
            return answer
        self._metrics.count_errors(api_key, answer)
        return Reply(encode_response(api_key, version, request.correlation_id, answer))

    async def _guarded(self, request: Request) -> Reply | dict[str, Any]:
        """The handler's answer to what is allowed of a request, and refusals of the rest."""
        ruling = self._ruling(request)
        if ruling.refusal is not None:
            return ruling.refusal
        answer = await self._handlers[request.api_key](_without_refused(request, ruling))
        # A handler that encodes its own answer has put `request.refused` into it.
        return answer if isinstance(answer, Reply) else ruling.completed(answer)

    def _ruling(self, request: Request) -> Ruling:
        guard = GUARDS.get(request.api_key)
        if guard is None:
            raise MalformedError(f"{name_of(request.api_key)} is not in the table of access and is refused")
        topics = self._topics

        def name_of_id(topic_id: Any) -> str | None:
            topic = topics.with_id(topic_id)
            return topic.name if topic is not None else None

        return guard(
            GuardedRequest(
                request=request,
                session=request.session,
                topic_name=name_of_id,
                creates_topics=self._auto_create_topics,
                topic_exists=lambda name: topics.named(name) is not None,
                topic_names=lambda: [topic.name for topic in topics.all()],
            )
        )

    # --- produce and fetch ------------------------------------------------------------------------

    def start_produce(
        self, client: Client, frame: bytearray, version: int
    ) -> DeferredReply | Begun[DeferredReply]:
        """Appends what a produce request carries; its answer has no reply for acks=0.

        One that has to wait before it appends is awaited first.
        """
        request = self.decode_produce(client, frame, version)
        return self.produce.start(request, frame, self.charge(client, request.client_id, frame))

    def decode_produce(self, client: Client, frame: bytearray, version: int) -> Request:
        """What is allowed of a produce request; the rest stands in `refused`."""
        try:
            if version not in VERSIONS[Api.PRODUCE]:
                raise MalformedError(f"produce v{version} is not served")
            request = _decoded(client, frame, Api.PRODUCE, version)
        except MalformedError:
            self._memory.release_frame(frame)
            raise
        if client.session is None:
            return request
        return _without_refused(request, self._ruling(request))

    def charge(self, client: Client, client_id: str | None, frame: bytearray) -> int:
        """Counts what a client produces; for how long it shall wait, in ms."""
        throttle_ms = self._quotas.charge(PRODUCER, client_id, len(frame))
        if throttle_ms:  # now, not with the answer: more requests may be on their way already
            client.mute(throttle_ms)
        return throttle_ms

    def attempt_fetch(self, client: Client, frame: bytearray, version: int) -> Attempt | None:
        """A fetch that can be the same again; None if it is to be answered as any other request."""
        if version not in VERSIONS[Api.FETCH]:
            return None
        request = _decoded(client, frame, Api.FETCH, version)
        if request.body.session_epoch > 0:
            return None
        return Attempt(self._fetching, request, FetchShape.of(frame, version))


def _without_refused(request: Request, ruling: Ruling) -> Request:
    return request._replace(refused=tuple(ruling.refused)) if ruling.refused else request


def _decoded(client: Client, frame: bytearray, api_key: int, version: int) -> Request:
    return decode_request(
        frame,
        api_key,
        version,
        client_host=client.client_host,
        local_address=client.local_address,
        session=client.session,
        connection=client.number,
    )


def correlation_id_of(frame: bytearray) -> int:
    return int.from_bytes(frame[4:8], "big", signed=True)
