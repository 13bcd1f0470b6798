"""Where Spark's classes are kept once Java has loaded them, so that a start takes half as long.

A Java that starts Spark loads and checks some ten thousand classes. With an archive of
them (class data sharing) it maps one file instead. `headrace.app.run.class_archive` makes it,
which `make setup` does; sessions on this machine use it where it is. It lives in the
Python environment and goes with it. Java itself sees to it that an archive of other jars
or of another Java is not used.
"""

import sys
from pathlib import Path

from headrace.java import JavaHome

__all__ = ["archive_options", "archive_place"]


def archive_place(java: JavaHome) -> Path:
    """Where the archive for this Java is, or would be."""
    return Path(sys.prefix, "share", "headrace", f"spark-classes-java{java.version}.jsa")


def archive_options(java: JavaHome) -> tuple[str, ...]:
    """Java's options for a start with the archive; none where there is no archive."""
    archive = archive_place(java)
    if not archive.is_file() or " " in str(archive):  # Spark splits options at spaces
        return ()
    # What Java says of an archive that does not fit is of no use, least of all on standard output.
    return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")
