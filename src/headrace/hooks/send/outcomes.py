"""The outcome of one attempt, and what an HTTP response means. Pure."""

from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum

__all__ = ["DeliveryOutcome", "DeliveryResult", "of_status", "retry_after_s"]

_TRY_AGAIN = frozenset({408, 425, 429})
_GONE = 410


class DeliveryResult(Enum):
    """DELIVERED: done. RETRY: may succeed later. REFUSED: never will. GONE: send nothing there any more."""

    DELIVERED = "delivered"
    RETRY = "retry"
    REFUSED = "refused"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOutcome:
    """The result of one attempt, and the reason in words, without any secret."""

    result: DeliveryResult
    reason: str
    retry_after_s: float | None = None


def of_status(status: int, said: str = "", asked_s: float | None = None) -> DeliveryOutcome:
    """The meaning of an HTTP response; `said` is the beginning of its body."""
    reason = f"the receiver answered {status}" + (f": {said}" if said else "")
    if 200 <= status < 300:
        return DeliveryOutcome(result=DeliveryResult.DELIVERED, reason=reason)
    if status == _GONE:
        return DeliveryOutcome(result=DeliveryResult.GONE, reason=reason)
    if status in _TRY_AGAIN or status >= 500:
        return DeliveryOutcome(result=DeliveryResult.RETRY, reason=reason, retry_after_s=asked_s)
    if 300 <= status < 400:
        return DeliveryOutcome(
            result=DeliveryResult.REFUSED, reason=f"{reason}; redirects are not followed; correct the URL"
        )
    return DeliveryOutcome(result=DeliveryResult.REFUSED, reason=reason)


def retry_after_s(value: str | None, now_s: float) -> float | None:
    """Seconds that a `Retry-After` asks for, as a number or a date; None if it cannot be parsed."""
    text = (value or "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
        at = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return max(0.0, at.timestamp() - now_s)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
