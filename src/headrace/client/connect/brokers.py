"""Connections to the brokers of one log, opened when needed, and retries."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from headrace.client.connect.channel import Channel
from headrace.client.connect.connection import Connection
from headrace.errors import ConfigError, RequestError, RetriableError
from headrace.wire import Api, ErrorCode, Fields, VersionRange, name_of

__all__ = ["Brokers", "address_of", "check_code", "is_retriable", "require_log"]

T = TypeVar("T")

_BACKOFF_S, _MAX_BACKOFF_S = 0.05, 1.0

# Errors that may go away with fresh metadata, or after a while.
_RETRIABLE = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.broker_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.network_exception,
        ErrorCode.kafka_storage_error,
        ErrorCode.listener_not_found,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ErrorCode.unstable_offset_commit,
    }
)


class Brokers:
    """One channel to each broker in use; synchronous, for one thread.

    `versions` are the versions of each API that the caller speaks: a broker that lacks one
    is refused. `forget` is called whenever connections are closed, so that the caller drops
    its metadata.
    """

    def __init__(
        self, connection: Connection, versions: Mapping[Api, int], forget: Callable[[], None] = lambda: None
    ) -> None:
        self._connection = connection
        self._versions = versions
        self._forget = forget
        self._channels: dict[tuple[str, int], Channel] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._security = connection.security()

    def retrying(self, attempt: Callable[[], T]) -> T:
        """What `attempt` returns; RetriableErrors are retried for `retry_timeout_ms`, then raised."""
        deadline = time.monotonic() + self._connection.retry_timeout_ms / 1000
        backoff_s = _BACKOFF_S
        while True:
            try:
                return attempt()
            except RetriableError:
                self.close()
                if time.monotonic() + backoff_s > deadline:
                    raise
            time.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)

    def ask(self, channel: Channel, api: Api, fields: Mapping[str, object], *, wait_ms: int = 0) -> Fields:
        """The response to a request in the version that the caller speaks."""
        return channel.request(api, self._versions[api], fields, wait_ms=wait_ms)

    def version_of(self, api: Api) -> int:
        """The version of an API that the caller speaks."""
        return self._versions[api]

    def speak(self, versions: Mapping[Api, int]) -> None:
        """From now on the caller speaks these versions; all brokers must."""
        self._versions = {**self._versions, **versions}

    def features(self) -> dict[str, int]:
        """The features that the brokers have agreed on, and up to which version."""
        answer = self.any().request(Api.API_VERSIONS, 3, _SOFTWARE)
        return {each.name: each.max_version_level for each in answer.finalized_features}

    def learn(self, brokers: Iterable[Fields]) -> None:
        """Takes the addresses from a response that lists brokers."""
        self._addresses = {each.node_id: (each.host, each.port) for each in brokers}

    def node(self, node: int) -> Channel:
        """A channel to the broker with this id, which `learn` must have been given."""
        if node not in self._addresses:
            raise RetriableError(f"no broker {node} is known at present")
        return self.at(*self._addresses[node])

    def any(self) -> Channel:
        """A channel to any broker: an open one, or the first of the bootstrap servers that answers."""
        failures = []
        for host, port in [*self._channels, *self._connection.servers()]:
            try:
                return self.at(host, port)
            except RetriableError as error:
                failures.append(str(error))
        raise RetriableError("; ".join(failures))

    def at(self, host: str, port: int) -> Channel:
        """A channel to an address, whose broker speaks all required versions."""
        if (host, port) not in self._channels:
            settings = self._connection
            channel = Channel(
                host,
                port,
                client_id=settings.client_id,
                timeout_ms=settings.request_timeout_ms,
                security=self._security,
            )
            _check_versions(channel, self._versions)
            self._channels[host, port] = channel
        return self._channels[host, port]

    def close(self) -> None:
        """Closes every connection; they are reopened when next needed."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self._forget()


_SOFTWARE = {"client_software_name": "headrace", "client_software_version": "unknown"}
_NOTHING = {"topics": [], "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}


def require_log(connection: Connection) -> list[str]:
    """Returns once a broker serves this connection: the addresses of all brokers, as host:port.

    Raises RequestError at once if the login is refused or the certificate is not trusted,
    and RetriableError if no broker answers in time.
    """
    brokers = Brokers(connection, {Api.METADATA: 12})
    try:
        answer = brokers.retrying(lambda: brokers.ask(brokers.any(), Api.METADATA, _NOTHING))
    finally:
        brokers.close()
    return [address_of(each.host, each.port) for each in answer.brokers]


def address_of(host: str, port: int) -> str:
    """As `parse_servers` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_code(code: int, what: str) -> None:
    """Raises the error for a Kafka error code, RetriableError if waiting may help."""
    if code == ErrorCode.none:
        return
    name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else "an unknown error"
    message = f"{what}: the broker answered {name} ({code})"
    raise (RetriableError if is_retriable(code) else RequestError)(message, code=code)


def is_retriable(code: int) -> bool:
    """Whether an error of Kafka's may go away with fresh metadata, or after a while."""
    return code in _RETRIABLE


def _check_versions(channel: Channel, versions: Mapping[Api, int]) -> None:
    answer = channel.request(Api.API_VERSIONS, 0, {})
    spoken = {each.api_key: VersionRange(each.min_version, each.max_version) for each in answer.api_keys}
    for api, version in versions.items():
        if version not in spoken.get(api, VersionRange(0, -1)):
            channel.close()
            raise ConfigError(
                f"{channel.address} does not speak version {version} of {name_of(api)}; "
                "use `headrace broker` or Kafka 3.1 or newer"
            )
