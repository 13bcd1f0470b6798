"""What the queries and the side topics of an application are called."""

__all__ = ["dead_topic", "frame_query", "late_topic"]


def frame_query(view: str) -> str:
    """What the query of one DataFrame is called."""
    return f"DataFrame {view}"


def dead_topic(app: str) -> str:
    """Where an application's unreadable records go."""
    return f"{app}.dead"


def late_topic(app: str) -> str:
    """Where an application's dropped records go."""
    return f"{app}.late"
