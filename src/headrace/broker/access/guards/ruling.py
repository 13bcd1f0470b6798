"""What a guard says about a request, and the shapes in which refusals are answered.

A guard looks at a request before its handler does. It takes out of the body what
the caller may not touch (so the handler never sees it), and keeps what to add to
the handler's answer instead. Handlers need not know that guards exist, except
those that encode their own answers: they add `request.refused`.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from uuid import UUID

from headrace.broker.access.acls import Resource
from headrace.broker.access.session import ClientSession
from headrace.wire import ErrorCode, Request

__all__ = ["CODES", "Guard", "GuardedRequest", "PartitionFields", "Ruling", "split"]

T = TypeVar("T")
Answer = dict[str, Any]

CODES = {
    Resource.TOPIC: int(ErrorCode.topic_authorization_failed),
    Resource.GROUP: int(ErrorCode.group_authorization_failed),
    Resource.CLUSTER: int(ErrorCode.cluster_authorization_failed),
    Resource.TRANSACTIONAL_ID: int(ErrorCode.transactional_id_authorization_failed),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GuardedRequest:
    """A request, who asks, and how to learn a topic's name from its id."""

    request: Request
    session: ClientSession
    topic_name: Callable[[UUID], str | None]
    creates_topics: bool = False
    topic_exists: Callable[[str], bool] = lambda _: True
    topic_names: Callable[[], list[str]] = list

    @property
    def body(self) -> Any:
        return self.request.body

    def name_of(self, item: Any, field: str = "name") -> str | None:
        """The topic that an item means; None for one that does not exist, which its handler says."""
        topic_id = getattr(item, "topic_id", None)
        if topic_id is not None:
            return self.topic_name(topic_id)
        return getattr(item, field, None) or None

    def may_topic(self, operation: int, item: Any, field: str = "name") -> bool:
        name = self.name_of(item, field)
        return name is None or self.session.may(operation, Resource.TOPIC, name)


@dataclasses.dataclass(slots=True, kw_only=True)
class Ruling:
    """Either a refusal of the whole, or what to add to the answer and what to hide in it."""

    refusal: Answer | None = None
    into: str = ""
    refused: list[Answer] = dataclasses.field(default_factory=list)
    edit: Callable[[Answer], None] | None = None

    def completed(self, answer: Answer) -> Answer:
        """The handler's answer with what was refused, without what must not be seen."""
        if self.edit is not None:
            self.edit(answer)
        if self.refused:
            answer[self.into] = [*answer.get(self.into, ()), *self.refused]
        return answer


Guard = Callable[[GuardedRequest], Ruling]


def split(items: Iterable[T], allowed: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """Those that are allowed, and the others."""
    yes: list[T] = []
    no: list[T] = []
    for item in items:
        (yes if allowed(item) else no).append(item)
    return yes, no


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFields:
    """Where an API names topics and partitions, in its request and in its answer."""

    items: str = "topics"
    name: str = "name"
    parts: str = "partitions"
    index: str = "partition_index"
    into: str = "topics"
    out_parts: str = "partitions"
    out_index: str = "partition_index"
    out_code: str = "error_code"
    by_id: bool = False
    extra: tuple[tuple[str, Any], ...] = ()

    def each(self, asked: GuardedRequest, operation: int) -> Ruling:
        """Takes the topics out on which the operation is not allowed."""
        allowed, denied = self.divided(asked, operation)
        if not denied:
            return Ruling()
        setattr(asked.body, self.items, allowed)
        return Ruling(into=self.into, refused=self.refusals(denied, CODES[Resource.TOPIC]))

    def divided(self, asked: GuardedRequest, operation: int) -> tuple[list[Any], list[Any]]:
        return split(
            getattr(asked.body, self.items), lambda item: asked.may_topic(operation, item, self.name)
        )

    def all(self, asked: GuardedRequest, code: int) -> Ruling:
        """Refuses everything, in the places where the API has room for it."""
        return Ruling(refusal={self.into: self.refusals(getattr(asked.body, self.items), code)})

    def refusals(self, items: Iterable[Any], code: int) -> list[Answer]:
        return [self._refusal(item, code) for item in items]

    def _refusal(self, item: Any, code: int) -> Answer:
        answer: Answer = {
            self.out_parts: [
                {self.out_index: getattr(part, self.index, part), self.out_code: code, **dict(self.extra)}
                for part in getattr(item, self.parts)
            ]
        }
        if hasattr(item, self.name):
            answer[self.name] = getattr(item, self.name)
        if self.by_id:
            answer["topic_id"] = item.topic_id
        return answer
