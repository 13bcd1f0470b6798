"""How a console writes: JSON and CloudEvents, the producer, and tokens to read one's own writes."""

from headrace.console.write.commands import CommandWriter
from headrace.console.write.writer import RecordWriter

__all__ = ["CommandWriter", "RecordWriter"]
