"""The topics of hooks: followed records, their own state, marks and dead letters."""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.hooks.log.state import HookSwitch as HookSwitch
    from headrace.hooks.log.state import switch_key as switch_key
    from headrace.hooks.log.state_topic import list_hooks as list_hooks

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "state": "HookSwitch switch_key",
        "state_topic": "list_hooks",
    },
)
