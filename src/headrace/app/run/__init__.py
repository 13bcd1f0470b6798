"""A running application: started, supervised and stopped in order. The highest room of `app` but `verify`."""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.app.run.runner import running as running
    from headrace.app.run.serving import serving as serving
    from headrace.app.run.spark import open_spark as open_spark

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "runner": "running",
        "serving": "serving",
        "spark": "open_spark",
    },
)
