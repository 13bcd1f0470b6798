"""A transactional producer in plain requests: what each protocol says, and nothing it could hide."""

import contextlib
import time
from typing import Any

from headrace.client.connect.channel import Channel
from headrace.records import Record, encode_batch
from headrace.wire import Api

__all__ = ["RawProducer", "Refused"]


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """The broker answered with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"error code {code}")
        self.code = code


def _check(code: int) -> None:
    if code:
        raise Refused(code)


class RawProducer:
    """One instance of a transactional id.

    With `bumps` it speaks the second version of the protocol (KIP-890): partitions are
    added by producing to them, and every end gives the next epoch.
    """

    def __init__(self, port: int, name: str, *, bumps: bool, timeout_ms: int = 60_000) -> None:
        self.name, self.bumps, self.timeout_ms = name, bumps, timeout_ms
        self.producer_id = self.epoch = -1
        self._port = port
        self._channel: Channel | None = None
        self._added: set[Any] = set()
        self._sequences: dict[tuple[str, int], int] = {}

    def request(self, api: Api, version: int, fields: dict[str, Any]) -> Any:
        if self._channel is None:
            self._channel = Channel("127.0.0.1", self._port, client_id=self.name, timeout_ms=20_000)
        try:
            return self._channel.request(api, version, fields)
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            with contextlib.suppress(OSError):
                channel.close()

    @property
    def claim(self) -> dict[str, Any]:
        return {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def init(self, *, keep: bool = False) -> None:
        """A new instance, or the same one that goes on (`keep`)."""
        known = self.claim if keep else {"transactional_id": self.name}
        fields = {**known, "transaction_timeout": self.timeout_ms}
        answer = self.request(Api.INIT_PRODUCER_ID, 5, fields)
        _check(answer.error_code)
        self._become(answer.producer_id, answer.producer_epoch)

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self._sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    def add(self, topic: str, partition: int) -> None:
        fields = {f"v3_and_below_{key}": value for key, value in self.claim.items()}
        fields["v3_and_below_topics"] = [{"name": topic, "partitions": [partition]}]
        (answer,) = self.request(Api.ADD_PARTITIONS_TO_TXN, 3, fields).results_by_topic_v3_and_below
        _check(answer.results_by_partition[0].partition_error_code)
        self._added.add((topic, partition))

    def send(self, topic: str, partition: int, value: bytes) -> int:
        """Its offset; repeated with the same number it is a retry."""
        if not self.bumps and (topic, partition) not in self._added:
            self.add(topic, partition)
        return self.produce(topic, partition, value)

    def produce(self, topic: str, partition: int, value: bytes) -> int:
        sequence = self._sequences.get((topic, partition), 0)
        batch = encode_batch(
            [Record(0, int(time.time() * 1000), None, value)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        fields = {
            "transactional_id": self.name,
            "acks": -1,
            "timeout": 10_000,
            "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
        }
        answer = self.request(Api.PRODUCE, 12 if self.bumps else 11, fields)
        found = answer.responses[0].partition_responses[0]
        _check(found.error_code)
        self._sequences[topic, partition] = sequence + 1
        return int(found.base_offset)

    def send_offset(self, group: str, topic: str, partition: int, offset: int, **member: Any) -> None:
        if not self.bumps and group not in self._added:
            _check(self.request(Api.ADD_OFFSETS_TO_TXN, 3, {**self.claim, "group_id": group}).error_code)
            self._added.add(group)
        part = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
        fields = {**self.claim, "group_id": group, **member}
        fields["topics"] = [{"name": topic, "partitions": [part]}]
        (answer,) = self.request(Api.TXN_OFFSET_COMMIT, 5 if self.bumps else 3, fields).topics
        _check(answer.partitions[0].error_code)

    def end(self, *, commit: bool) -> None:
        self.repeat_end(self.claim, commit=commit)
        self._added.clear()

    def repeat_end(self, claim: dict[str, Any], *, commit: bool) -> None:
        """An end under any claim; with the second version its answer says who we are."""
        answer = self.request(Api.END_TXN, 5 if self.bumps else 3, {**claim, "committed": commit})
        _check(answer.error_code)
        if self.bumps:
            self._become(answer.producer_id, answer.producer_epoch)
