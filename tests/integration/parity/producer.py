"""A transactional producer in plain requests, for the cases of transactions."""

from headrace.wire import Api
from parity.fetch import seen
from parity.stage import batch_of, code, wait_until

__all__ = ["Producer", "reading"]


class Producer:
    """One instance of a transactional id; codes instead of errors."""

    def __init__(self, log, name=None, *, bumps=False, timeout_ms=60_000):
        self.log, self.name, self.bumps = log, name or log.fresh("txn"), bumps
        self.sequences = {}
        answer = log.settled(lambda: self.init(timeout_ms=timeout_ms))
        assert answer.error_code == 0
        self.id, self.epoch = answer.producer_id, answer.producer_epoch

    def init(self, timeout_ms=60_000, **options):
        fields = {"transactional_id": self.name, "transaction_timeout": timeout_ms, **options}
        return self.log.ask(Api.INIT_PRODUCER_ID, 5, fields)

    def claim(self, **other):
        return {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch, **other}

    def add(self, *topics, **other):
        """The code of each partition 0."""
        fields = {f"v3_and_below_{key}": value for key, value in self.claim(**other).items()}
        fields["v3_and_below_topics"] = [{"name": topic, "partitions": [0]} for topic in topics]

        def ask():
            return self.log.ask(Api.ADD_PARTITIONS_TO_TXN, 3, fields).results_by_topic_v3_and_below

        answer = self.log.settled(ask, lambda found: found[0].results_by_partition[0].partition_error_code)
        found = {each.name: each.results_by_partition[0].partition_error_code for each in answer}
        return [code(found[topic]) for topic in topics]

    def send(self, topic, value=b"v", *, sequence=None, version=None, **other):
        """Code and offset; the next sequence number unless told."""
        claim = self.claim(**other)
        number = self.sequences.get(topic, 0) if sequence is None else sequence
        batch = batch_of(
            value,
            producer_id=claim["producer_id"],
            producer_epoch=claim["producer_epoch"],
            base_sequence=number,
            transactional=True,
        )
        data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
        fields = {
            "transactional_id": claim["transactional_id"],
            "acks": -1,
            "timeout": 10_000,
            "topic_data": data,
        }

        def ask():
            answer = self.log.ask(Api.PRODUCE, version or (12 if self.bumps else 11), fields)
            return answer.responses[0].partition_responses[0]

        found = self.log.settled(ask)
        if found.error_code == 0:
            self.sequences[topic] = number + 1
        return [code(found.error_code), found.base_offset]

    def end(self, commit=True, **other):
        """Its code; with the second version the next epoch is taken."""
        fields = {**self.claim(**other), "committed": commit}
        answer = self.log.settled(lambda: self.log.ask(Api.END_TXN, 5 if self.bumps else 3, fields))
        if answer.error_code == 0 and self.bumps:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return code(answer.error_code)

    def add_group(self, group, **other):
        fields = {**self.claim(**other), "group_id": group}
        return code(self.log.settled(lambda: self.log.ask(Api.ADD_OFFSETS_TO_TXN, 3, fields)).error_code)

    def commit(self, group, topic, offset=5, *, partition=0, **member):
        part = {"partition_index": partition, "committed_offset": offset, "committed_metadata": "m"}
        topics = [{"name": topic, "partitions": [part]}]
        fields = {**self.claim(), "group_id": group, "topics": topics, **member}

        def ask():
            answer = self.log.ask(Api.TXN_OFFSET_COMMIT, 5 if self.bumps else 3, fields)
            return answer.topics[0].partitions[0]

        return code(self.log.settled(ask).error_code)


def reading(log, topic, aborted, end):
    """What a reader of committed records gets once the markers are written."""
    answer = wait_until(
        lambda: log.fetch(topic, 0, isolation_level=1), lambda found: found.last_stable_offset >= end
    )
    listed = [[each.producer_id == aborted.id, each.first_offset] for each in answer.aborted_transactions]
    return [seen(answer), listed]
