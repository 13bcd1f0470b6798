"""Dead letters: what they say about themselves, and sending them again (redriving)."""

from headrace.client.deadletters.letters import (
    DeadLetter,
    ReasonCounts,
    is_dead_letter_topic,
    read_dead_letter,
    shortened,
)
from headrace.client.deadletters.redrive import Redrive, dead_letter_topics, redrive_progress
from headrace.client.deadletters.redrive_progress import RedriveProgress

__all__ = [
    "DeadLetter",
    "ReasonCounts",
    "Redrive",
    "RedriveProgress",
    "dead_letter_topics",
    "is_dead_letter_topic",
    "read_dead_letter",
    "redrive_progress",
    "shortened",
]
