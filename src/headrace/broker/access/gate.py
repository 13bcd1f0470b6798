"""Where guards meet handlers: what a caller may not do never reaches the handler."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from headrace.broker.access.guards import GUARDS, Asked, Ruling
from headrace.broker.replies import Reply
from headrace.wire import MalformedError, Request, name_of

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["guarded", "sifted"]


async def guarded(
    broker: "Broker", call: Callable[..., Awaitable[Any]], request: Request
) -> Reply | dict[str, Any]:
    """The handler's answer to what is allowed of a request, and refusals of the rest."""
    ruling = _ruling(broker, request)
    if ruling.refusal is not None:
        return ruling.refusal
    answer: Reply | dict[str, Any] = await call(broker, _with_refused(request, ruling))
    # A handler that encodes its own answer has put `request.refused` into it.
    return answer if isinstance(answer, Reply) else ruling.completed(answer)


def sifted(broker: "Broker", request: Request) -> Request:
    """What is allowed of a produce request; the rest stands in `refused`."""
    return _with_refused(request, _ruling(broker, request))


def _with_refused(request: Request, ruling: Ruling) -> Request:
    return request._replace(refused=tuple(ruling.refused)) if ruling.refused else request


def _ruling(broker: "Broker", request: Request) -> Ruling:
    guard = GUARDS.get(request.api_key)
    if guard is None:
        raise MalformedError(f"{name_of(request.api_key)} is not in the table of access and is refused")
    topics = broker.topics

    def name_of_id(topic_id: Any) -> str | None:
        topic = topics.with_id(topic_id)
        return topic.name if topic is not None else None

    return guard(
        Asked(
            request=request,
            session=request.session,
            topic_name=name_of_id,
            creates_topics=broker.settings.auto_create_topics,
            topic_exists=lambda name: topics.named(name) is not None,
            topic_names=lambda: [topic.name for topic in topics.all()],
        )
    )
