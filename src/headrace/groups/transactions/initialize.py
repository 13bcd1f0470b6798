"""InitProducerId: who the producer of a transactional id is from now on (KIP-98, KIP-360)."""

from dataclasses import dataclass, replace

from headrace.groups.codes import Code
from headrace.groups.settings import GroupSettings
from headrace.groups.transactions.end import fence
from headrace.groups.transactions.state import Claim, EndVerdict, Transactional

__all__ = ["InitRequest", "initialize", "needs_new_id"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InitRequest:
    """`expected` is who the producer believes to be; None: a new instance, which fences every other."""

    transactional_id: str
    timeout_ms: int
    expected: Claim | None = None


def needs_new_id(producer: Transactional | None) -> bool:
    """Whether the next decision on it may have to give a producer id that nobody had."""
    return producer is None or producer.is_exhausted


def initialize(
    producer: Transactional | None,
    request: InitRequest,
    settings: GroupSettings,
    *,
    new_id: int,
    now_ms: int,
) -> EndVerdict:
    """The next epoch, or epoch 0 of `new_id`; aborts what the former instance left open.

    A repeated request of the same instance gets what the first one got.
    """
    known = producer or Transactional(
        transactional_id=request.transactional_id, claim=Claim(new_id, -1), changed_ms=now_ms
    )
    if not 0 < request.timeout_ms <= settings.transaction_max_timeout_ms:
        return EndVerdict(producer=known, error=Code.INVALID_TRANSACTION_TIMEOUT)
    if producer is None:
        return _started(known, request, Claim(new_id, 0), now_ms)
    if request.expected is not None and request.expected not in (known.claim, known.last):
        return EndVerdict(producer=known, error=Code.PRODUCER_FENCED)
    if known.unfinished is not None:
        return EndVerdict(producer=known, error=None)
    if known.ongoing is not None:
        if request.expected not in (None, known.claim):
            return EndVerdict(producer=known, error=Code.PRODUCER_FENCED)
        return replace(fence(known, now_ms=now_ms), error=None)
    if known.is_exhausted:
        return _started(known, request, Claim(new_id, 0), now_ms)
    if request.expected is not None and request.expected == known.last:
        return EndVerdict(producer=known)
    return _started(known, request, Claim(known.claim.producer_id, known.claim.epoch + 1), now_ms)


def _started(known: Transactional, request: InitRequest, claim: Claim, now_ms: int) -> EndVerdict:
    producer = replace(
        known,
        claim=claim,
        last=known.claim if request.expected is not None else None,
        timeout_ms=request.timeout_ms,
        decided=None,
        recovered=False,
        early=False,
        changed_ms=now_ms,
    )
    return EndVerdict(producer=producer, save=True)
