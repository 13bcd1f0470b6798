"""Views as changelogs on topics."""

from headrace.views.topic.changelog_records import LEDGER_KEY

__all__ = ["LEDGER_KEY"]
