"""The feed: topics as rows with event time and watermark, planned beside the driver and read by tasks."""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.streams.feed.cuts import newest_cut as newest_cut
    from headrace.streams.feed.first_positions import first_position as first_position
    from headrace.streams.feed.joint import JointPosition as JointPosition
    from headrace.streams.feed.options import FeedOptions as FeedOptions
    from headrace.streams.feed.positions import FeedPosition as FeedPosition
    from headrace.streams.feed.positions import FeedRange as FeedRange
    from headrace.streams.feed.positions import Heartbeat as Heartbeat
    from headrace.streams.feed.positions import SilenceMeter as SilenceMeter
    from headrace.streams.feed.positions import feed_ranges as feed_ranges
    from headrace.streams.feed.positions import idle_partitions as idle_partitions
    from headrace.streams.feed.positions import next_position as next_position
    from headrace.streams.feed.progress import GroupProgress as GroupProgress
    from headrace.streams.feed.progress import stage_offsets as stage_offsets
    from headrace.streams.feed.source_times import time_header as time_header
    from headrace.streams.feed.stamping import Stamped as Stamped
    from headrace.streams.feed.stamping import Stamper as Stamper

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "cuts": "newest_cut",
        "joint": "JointPosition",
        "options": "FeedOptions",
        "positions": (
            "FeedPosition FeedRange Heartbeat SilenceMeter feed_ranges idle_partitions next_position"
        ),
        "first_positions": "first_position",
        "progress": "GroupProgress stage_offsets",
        "source_times": "time_header",
        "stamping": "Stamped Stamper",
    },
)
