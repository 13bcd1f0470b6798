"""The data directory: its lock, its topics and their configuration."""

from headrace.storage.directory.lock import DirectoryLock, InUse
from headrace.storage.topic_config import SETTINGS

__all__ = ["SETTINGS", "DirectoryLock", "InUse"]
