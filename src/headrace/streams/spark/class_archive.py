"""Where Spark's classes are kept once Java has loaded them, so that a start takes half as long.

A Java that starts Spark loads and checks some ten thousand classes. With an archive of
them (class data sharing) it maps one file instead. `headrace.app.run.class_archive` makes it,
which `make setup` does; sessions on this machine use it where it is. It lives in the
Python environment and goes with it. When Spark or Java was updated, or the environment was moved, the
next run makes another one.
"""

import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from headrace.java import JavaHome

__all__ = ["archive_options", "archive_place", "outdated_archives"]

_KEPT = 2  # of those that do not fit (any more): that of another Java, for example


def archive_place(java: JavaHome) -> Path:
    """Where the archive for this Java and these jars is, or would be.

    Java uses an archive only if the jars, their folder and their order are those it was made of, and
    says nothing otherwise; so the name tells them apart.
    """
    made_of = hashlib.sha256("\n".join(_made_of(java)).encode()).hexdigest()[:12]
    return _folder() / f"spark-classes-java{java.version}-{made_of}.jsa"


def outdated_archives(place: Path) -> list[Path]:
    """Archives beside this one that are hardly needed again: all but the newest others."""
    others = [each for each in place.parent.glob("spark-classes-*.jsa") if each != place]
    return sorted(others, key=lambda each: each.stat().st_mtime_ns)[:-_KEPT]


def _folder() -> Path:
    return Path(sys.prefix, "share", "headrace")


def _made_of(java: JavaHome) -> Iterator[str]:
    yield f"{java.runtime} {_stamp(java.runtime / 'lib' / 'modules')}"
    spec = importlib.util.find_spec("pyspark")
    package = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    jars = Path(os.environ.get("SPARK_HOME") or package, "jars")
    yield str(jars)
    if jars.is_dir():
        with os.scandir(jars) as found:  # in its own order, which is that of Java's class path
            yield from (f"{each.name} {_stamp(each)}" for each in found)


def _stamp(file: Path | os.DirEntry[str]) -> str:
    try:
        status = file.stat()
    except OSError:
        return "missing"
    return f"{status.st_size} {status.st_mtime_ns}"


def archive_options(java: JavaHome) -> tuple[str, ...]:
    """Java's options for a start with the archive; none where there is no archive."""
    archive = archive_place(java)
    if not archive.is_file() or " " in str(archive):  # Spark splits options at spaces
        return ()
    # What Java says of an archive that does not fit is of no use, least of all on standard output.
    return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")
