"""How Spark says how much a micro-batch may take; without that, batches could not be bounded at all.

PySpark has told data sources of it since 4.2. Before, a source was not even told where the batch
begins that it is to end, so this cannot be done without.
"""

import pyspark

from headrace.errors import ConfigError

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ModuleNotFoundError:
    raise ConfigError(
        f"PySpark {pyspark.__version__} cannot bound the micro-batches of a data source; use PySpark 4.2 or "
        "4.3, on the driver and on the cluster"
    ) from None

__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxBytes", "ReadMaxRows", "SupportsTriggerAvailableNow"]
