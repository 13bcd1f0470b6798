"""Alerts: which are active now, and the rules by which an application's status and the log raise them."""

from headrace.console.ask.alerts.active import active_alerts

__all__ = ["active_alerts"]
