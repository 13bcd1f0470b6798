"""From which broker records are read: the leader, or a replica nearby that the leader names."""

import uuid
from types import SimpleNamespace

import pytest

from headrace.client import Connection, RawFetcher
from headrace.client.connect.clients import _merged
from headrace.records import Record, encode_batch
from headrace.wire import Api, ErrorCode

LEADER, REPLICA, NOBODY = 1, 2, -1


class Broker:
    """One node of a log with one record; a leader sends who is in the rack of the replica there."""

    def __init__(self, node, has_records=True):
        self.node, self.has_records, self.asked = node, has_records, []

    def ask(self, api, version, fields):
        assert api == Api.FETCH
        self.asked.append(fields["rack_id"])

    def answer(self, *_, **__):
        sends_on = self.node == LEADER and self.asked[-1] == "near"
        code = ErrorCode.none if self.has_records else ErrorCode.offset_out_of_range
        records = bytes(encode_batch([Record(0, 0, None, b"x")]))
        data = SimpleNamespace(
            partition_index=0,
            error_code=code,
            preferred_read_replica=REPLICA if sends_on else NOBODY,
            records=b"" if sends_on or not self.has_records else records,
            aborted_transactions=(),
            last_stable_offset=1,
            high_watermark=1,
        )
        return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[data])])


class Brokers:
    """What a fetcher asks, without a network."""

    def __init__(self, **replica):
        self.nodes = {LEADER: Broker(LEADER), REPLICA: Broker(REPLICA, **replica)}

    def retrying(self, attempt):
        return attempt()

    def any(self):
        return None

    def learn(self, brokers):
        pass

    def node(self, number):
        return self.nodes[number]

    def ask(self, channel, api, fields):
        partition = SimpleNamespace(error_code=0, partition_index=0, leader_id=LEADER)
        topic = SimpleNamespace(error_code=0, topic_id=uuid.UUID(int=7), name="t", partitions=[partition])
        return SimpleNamespace(brokers=[], topics=[topic])


def fetched(brokers, **settings):
    fetcher = RawFetcher(Connection(**settings))
    fetcher._brokers = brokers
    return list(fetcher.fetch("t", 0, 0, 1)), [len(each.asked) for each in brokers.nodes.values()]


def test_without_a_rack_records_come_from_the_leader():
    runs, asked = fetched(Brokers())
    assert len(runs) == 1 and asked == [1, 0]


def test_records_come_from_the_replica_that_the_leader_names_for_a_rack():
    runs, asked = fetched(Brokers(), client_rack="near")
    assert len(runs) == 1 and asked == [1, 1]


def test_what_a_replica_does_not_have_is_asked_of_the_leader():
    runs, asked = fetched(Brokers(has_records=False), client_rack="near")
    assert len(runs) == 1 and asked == [2, 1]


@pytest.mark.parametrize("settings", [{"client_rack": "near"}, {}])
def test_the_rack_is_that_of_the_setting_or_of_the_process(settings, monkeypatch):
    monkeypatch.setenv("HEADRACE_CLIENT_RACK", "near")
    runs, asked = fetched(Brokers(), **settings)
    assert len(runs) == 1 and asked == [1, 1]
    assert _merged(Connection(**settings), {}, {})["client.rack"] == "near"
