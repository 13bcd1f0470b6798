"""Spark itself: finding or starting a session, its Python workers, and what makes both start fast."""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.streams.spark.class_archive import archive_place as archive_place
    from headrace.streams.spark.class_archive import outdated_archives as outdated_archives
    from headrace.streams.spark.session import executor_count as executor_count
    from headrace.streams.spark.session import guest_session as guest_session
    from headrace.streams.spark.session import running_spark as running_spark
    from headrace.streams.spark.session import shuffle_partitions as shuffle_partitions
    from headrace.streams.spark.session import spark_home_defaults as spark_home_defaults
    from headrace.streams.spark.session import spark_master as spark_master
    from headrace.streams.spark.settings import is_local as is_local
    from headrace.streams.spark.settings import parse_settings as parse_settings
    from headrace.streams.spark.settings import refuse_connect_session as refuse_connect_session
    from headrace.streams.spark.warm_up import warm_up as warm_up

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "class_archive": "archive_place outdated_archives",
        "session": (
            "executor_count guest_session running_spark shuffle_partitions spark_home_defaults spark_master"
        ),
        "settings": "is_local parse_settings refuse_connect_session",
        "warm_up": "warm_up",
    },
)
