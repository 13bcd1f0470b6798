"""Checks before the first batch: settings that cannot work where Spark runs are refused.

Executors of a cluster are other processes, usually on other machines. They need the data
folder, or the URL, which holds the state of windows, and the log. Some settings are refused as they are;
the rest is found out by a small job on the executors.
"""

import importlib.metadata
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headrace.app.options import RunOptions
from headrace.client import Connection, require_log
from headrace.errors import ConfigError, HeadraceError
from headrace.kernels import library
from headrace.objects import (
    check_probe,
    is_url,
    leave_probe,
    open_objects,
    remove_probe,
    require_supported,
)
from headrace.streams.spark import is_local, refuse_connect_session, spark_home_defaults, spark_master

__all__ = [
    "ExecutorReport",
    "check_executors",
    "check_from_executor",
    "check_url_from_executor",
    "explain",
    "master_of",
    "problems",
    "reached",
    "refuse_unsupported",
]

_TASKS_PER_CORE = 4  # so that every executor with a free core gets one
_PATIENCE_S = 30.0
_SETTLED_S = 1.0  # within which executors that start together have registered
_OWN_FOLDERS = "SPARK_LOCAL_DIRS"  # as Spark tells its Python workers: no two executors have the same
_BUSY = "{missing} of {known} executors of {master} are busy, and were not checked before the first batch"
_BROKER_TIMEOUT_MS = 5_000
_NOBODY = (
    "no executor of {master} has answered yet: it needs a worker with free cores and enough memory "
    "(spark.executor.memory, spark.cores.max), and must reach this driver at {host} (spark.driver.host)"
)
_HOST = re.compile(r"\(TID \d+\) \(([^\s()]+) executor")
_OTHER_PYTHON = re.compile(r"different version: (\S+) than that in driver: (\d[\d.]*\d)")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
_NO_MODULE = re.compile(r"No module named '?headrace")
_ERROR_LINE = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception)\b.*$", re.MULTILINE)


class ExecutorReport(NamedTuple):
    """What one task found: its host, the file it wrote, its version of Headrace, and a problem or nothing."""

    host: str
    written: str
    version: str
    problem: str


def master_of(options: RunOptions) -> str | None:
    """Where Spark runs or will run; None: on this machine. Raises ConfigError where two masters are named."""
    return spark_master(options.master, options.conf, spark_home_defaults())


def refuse_unsupported(options: RunOptions, spark: SparkSession | None = None) -> None:
    """Raises ConfigError, with what to do, if a run with these options cannot work; creates nothing.

    `spark` is the session that it is to be a guest of, if there is one.
    """
    if spark is not None:
        refuse_connect_session(spark)
    data, master = options.data, master_of(options)
    if is_url(str(data)):
        raise ConfigError(f"data={str(data)!r} is a URL: give it as `url` of the options, or as --data")
    if options.url is not None:
        require_supported("--data", options.url)
        if not options.bootstrap:
            raise ConfigError(
                f"--data {options.url} is a URL, but the embedded log keeps its files on this machine; start "
                "a log (headrace broker) and pass it as --bootstrap"
            )
    if options.from_snapshot is not None and (options.rebuild or not options.bootstrap):
        raise ConfigError(
            "a snapshot is continued, and not rebuilt; omit --rebuild or --from"
            if options.rebuild
            else "a snapshot goes on with the log that it was taken on; pass that as --bootstrap"
        )
    if is_local(master):
        return
    if not options.bootstrap and not str(master).startswith("local-cluster["):
        raise ConfigError(
            f"executors of {master} cannot reach the embedded log, which listens on this machine's loopback; "
            "start a log that they can reach (headrace broker) and pass it as --bootstrap"
        )
    if options.url is None and not data.is_absolute():
        raise ConfigError(
            f"--data {data} is relative, and executors of {master} have other working directories; give "
            "the absolute path of a folder that all of them share with this machine"
        )


def check_executors(
    spark: SparkSession,
    data: Path,
    connection: Connection,
    *,
    url: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Checks the executors with a small job; raises ConfigError with what is wrong where.

    Each runs the same Python and Headrace, compiled part and all, reads where state is kept what this
    process wrote there, and the other way round, and reaches every broker that this process does. State
    is kept in the data folder, or at the URL. It is said if no executor comes.
    """
    brokers = reached(connection, [*connection.bootstrap_servers.split(","), *require_log(connection)])
    if url is not None:
        _check_at(spark, url, connection, brokers, say)
        return
    token = secrets.token_hex(8)
    probe, folder = data / f"probe-{token}", str(data)
    data.mkdir(parents=True, exist_ok=True)
    probe.write_text(token)
    try:
        check = partial(check_from_executor, Path(folder), token, connection, brokers)
        wrong = problems(_reports(spark, check, say), data, _version())
    finally:
        for path in data.glob(f"probe-{token}*"):
            path.unlink(missing_ok=True)
    _refuse(spark, wrong)


def _check_at(
    spark: SparkSession, url: str, connection: Connection, brokers: Sequence[str], say: Callable[[str], None]
) -> None:
    objects = open_objects(url)
    token = leave_probe(objects)
    try:
        check = partial(check_url_from_executor, url, token, connection, brokers)
        found = _reports(spark, check, say)
    finally:
        remove_probe(objects, token)
    _refuse(spark, problems(found, None, _version()))


def _reports(
    spark: SparkSession, check: Callable[[], ExecutorReport], say: Callable[[str], None]
) -> list[ExecutorReport]:
    """What every executor says; raises ConfigError if they cannot even be asked.

    Executors of a new context register one after the other, and one that is busy gets no task: they are
    asked again until all have answered and no more come. Who never answers is told, and not waited for.
    """
    context = spark.sparkContext
    found: list[ExecutorReport] = []
    answered: set[str] = set()
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        before = len(answered)
        for executor, report in _asked(context, check, say):
            answered.add(executor)
            found.append(report)
        known = _executor_count(context)
        if any(each.problem for each in found) or (len(answered) == before and before >= known):
            return found
        if time.monotonic() > deadline:
            if missing := max(0, known - len(answered)):
                say(_BUSY.format(missing=missing, known=known, master=context.master))
            return found
        time.sleep(_SETTLED_S)  # for those that are about to register


def _asked(
    context: SparkContext, check: Callable[[], ExecutorReport], say: Callable[[str], None]
) -> list[tuple[str, ExecutorReport]]:
    """What executors with a free core say now, each with what tells it from the others."""
    tasks = _TASKS_PER_CORE * context.defaultParallelism
    waiting = threading.Timer(_PATIENCE_S, say, [_NOBODY.format(master=context.master, host=_host(context))])
    waiting.daemon = True
    waiting.start()
    try:
        job = context.parallelize(range(tasks), tasks)
        found = job.mapPartitions(lambda _: [(os.environ.get(_OWN_FOLDERS, ""), tuple(check()))]).collect()
    except Exception as error:  # Spark wraps whatever failed in a worker, or kept it from starting
        python = str(context.pythonExec)
        raise ConfigError(
            f"{context.master} cannot run this application: {explain(str(error), python, _version())}"
        ) from error
    finally:
        waiting.cancel()
    return [(executor, ExecutorReport(*each)) for executor, each in found]


def _host(context: SparkContext) -> str:
    return str(context.getConf().get("spark.driver.host"))


def _executor_count(context: SparkContext) -> int:
    """How many executors have registered; Spark counts the driver as well."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1


def _refuse(spark: SparkSession, wrong: Sequence[str]) -> None:
    if wrong:
        raise ConfigError(f"{spark.sparkContext.master} cannot run this application: " + "; ".join(wrong))


def check_from_executor(
    folder: Path, token: str, connection: Connection, brokers: Sequence[str]
) -> ExecutorReport:
    """Runs on an executor: reads the driver's file, writes another beside it, and contacts the log."""
    host, written = socket.gethostname(), f"probe-{token}-{secrets.token_hex(8)}"
    try:
        library()
        (folder / f"probe-{token}").read_text()
        (folder / written).write_text(host)
        problem = _unreached(connection, brokers)
    except FileNotFoundError:
        problem = f"does not share {folder} with the driver: mount it at the same path"
    except OSError as error:
        problem = f"cannot use {folder}: {error.strerror or error}"
    except HeadraceError as error:
        problem = f"cannot run Headrace: {error}"
    return ExecutorReport(host, written, _version(), problem)


def check_url_from_executor(
    url: str, token: str, connection: Connection, brokers: Sequence[str]
) -> ExecutorReport:
    """Runs on an executor: finds the driver's probe at the URL, answers it, and contacts the log."""
    try:
        library()
        problem = check_probe(open_objects(url), token) or _unreached(connection, brokers)
    except HeadraceError as error:
        problem = f"cannot run Headrace: {error}"
    return ExecutorReport(socket.gethostname(), "", _version(), problem)


def reached(connection: Connection, addresses: Iterable[str]) -> list[str]:
    """Those of the addresses at which a broker answers this process, without repetitions."""
    wanted = dict.fromkeys(each.strip() for each in addresses if each.strip())
    return [each for each in wanted if not _unreached(connection, [each])]


def _unreached(connection: Connection, brokers: Iterable[str]) -> str:
    """What is wrong with the first broker that does not answer; empty if all do."""
    for each in brokers:
        try:
            require_log(replace(connection, bootstrap_servers=each, retry_timeout_ms=_BROKER_TIMEOUT_MS))
        except HeadraceError as error:
            return f"cannot reach the broker {each}, which the driver reaches: {error}"
    return ""


def problems(found: Iterable[ExecutorReport], data: Path | None, version: str) -> list[str]:
    """What is wrong on which machine, without repetitions; `data` is the folder that they wrote to."""
    return list(dict.fromkeys(_problems(found, data, version)))


def _problems(found: Iterable[ExecutorReport], data: Path | None, version: str) -> Iterator[str]:
    for each in found:
        if each.version != version:
            yield (
                f"the executor on {each.host} has Headrace {each.version}, but the driver has {version}: "
                "install the same there"
            )
        elif each.problem:
            yield f"the executor on {each.host} {each.problem}"
        elif data is not None and not (data / each.written).exists():
            yield f"the executor on {each.host} has a different folder at {data}: mount the driver's there"


def explain(text: str, python: str, version: str) -> str:
    """What kept executors from running the check, by what Spark says of it: where, what, and the fix."""
    host = _HOST.search(text)
    where = f"the executor on {host[1]}" if host else "an executor"
    mismatch = _OTHER_PYTHON.search(text)
    if mismatch:
        return (
            f"{where} has Python {mismatch[1]}, but the driver has {mismatch[2]}: let PYSPARK_PYTHON name a "
            f"Python {mismatch[2]} that is there"
        )
    missing = _NO_PYTHON.search(text)
    if missing:
        return f"{where} has no Python at {missing[1]}: let PYSPARK_PYTHON name one that is there"
    if "EOFException" in text or _NO_MODULE.search(text):
        return (
            f"the Python of {where} ({python}) cannot import Headrace: install headrace {version} there with "
            "all that it needs, or let PYSPARK_PYTHON name a Python that has it"
        )
    return f"{where} failed the check before the first batch: {_cause(text)}"


def _version() -> str:
    return importlib.metadata.version("headrace")


def _cause(text: str) -> str:
    """The last line of a traceback that names an error."""
    lines = _ERROR_LINE.findall(text)
    return str(lines[-1] if lines else text).strip()[:300]
