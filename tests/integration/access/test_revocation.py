"""A permission that goes is gone: for sessions that were opened with it, and for requests that wait."""

import asyncio
import contextlib
import hashlib
import itertools
import threading
import time

import pytest
from access.places import (
    GROUP,
    GROUP_DENIED,
    LONG_MS,
    NO_SESSION,
    SCRAM_SHA_256,
    TOPIC,
    TOPIC_DENIED,
    UNKNOWN_ID,
    USERS,
    WRITE,
    Place,
    Waiting,
    codes,
    produced,
    wait,
)
from queue_member import ACCEPT

from headrace.broker.access import offline
from headrace.broker.coordinators.queues.reading import read_chunk
from headrace.errors import RetriableError
from headrace.records import Record, encode_batch
from headrace.testing.broker import running_broker
from headrace.wire import Api

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    data = tmp_path_factory.mktemp("revocation")
    for user in USERS:
        offline.add_user(data, user, f"password of {user}")
    with running_broker(data, authenticate=True, super_users="admin") as running:
        yield running


@pytest.fixture
def place(broker):
    made = Place(broker, f"place-{next(_numbers)}")
    yield made
    made.admin.close()


@pytest.fixture
def alice(place):
    """A member of the queue who may read its topic, and has read a first record."""
    place.allow("alice", kind=GROUP)
    place.allow("alice")
    member = place.member("alice")
    assert member.beat(place.name).error_code == 0
    assert place.produce(b"first") == 0
    member.fetch()
    assert member.values() == [(b"first", 1)]
    yield member
    member.close()


# --- share sessions -------------------------------------------------------------------------------


def test_a_share_session_serves_no_topic_that_may_no_longer_be_read(place, alice):
    place.revoke("alice")
    assert place.produce(b"second") == 0
    answer = alice.fetch(named=False, wait_ms=0)
    assert codes(answer) == [TOPIC_DENIED] and alice.values() == []
    place.allow("alice")
    alice.fetch(named=False)
    assert alice.values() == [(b"second", 1)]


def test_a_share_session_serves_nothing_to_who_may_no_longer_read_as_the_group(place, alice):
    place.revoke("alice", kind=GROUP)
    place.produce(b"second")
    assert alice.fetch(named=False, wait_ms=0).error_code == GROUP_DENIED


def test_a_topic_that_may_be_read_later_is_served_without_being_named_again(place):
    place.allow("alice", kind=GROUP)
    place.allow("alice", operation=8)  # describe
    member = place.member("alice")
    member.beat(place.name)
    assert codes(member.fetch(wait_ms=0)) == [TOPIC_DENIED]
    place.produce(b"first")
    place.allow("alice")
    member.fetch(named=False)
    assert member.values() == [(b"first", 1)]


def test_a_share_fetch_that_waits_gets_nothing_appended_after_the_revocation(place, alice):
    waiting = Waiting(lambda: alice.fetch(named=False, wait_ms=LONG_MS))
    place.wait_read()
    place.revoke("alice")
    place.produce(b"second")
    assert codes(waiting.result()) == [TOPIC_DENIED] and alice.values() == []
    place.allow("alice")
    alice.fetch(named=False)
    assert alice.values() == [(b"second", 1)]  # the refusal counted as no delivery


@pytest.mark.parametrize(("kind", "code"), [(TOPIC, TOPIC_DENIED), (GROUP, GROUP_DENIED)])
def test_a_permission_that_goes_while_records_are_read_from_disk_is_gone(
    place, alice, monkeypatch, kind, code
):
    """Between the look at the permission and the lease lies a disk, which may take its time."""
    revoked = []

    async def slow(*given, **more):
        found = await read_chunk(*given, **more)
        if not revoked:
            revoked.append(kind)
            await asyncio.to_thread(place.revoke, "alice", kind=kind)
        return found

    place.produce(b"second")
    monkeypatch.setattr("headrace.broker.coordinators.queues.fetching.read_chunk", slow)
    answer = alice.fetch(named=False, wait_ms=LONG_MS)
    assert revoked
    assert code in (answer.error_code, *codes(answer)) and alice.values() == []


def test_a_share_fetch_that_waits_ends_when_the_group_may_no_longer_be_read(place, alice):
    waiting = Waiting(lambda: alice.fetch(named=False, wait_ms=LONG_MS))
    place.wait_read()
    place.revoke("alice", kind=GROUP)
    place.produce(b"second")
    assert waiting.result().error_code == GROUP_DENIED and alice.values() == []


def test_records_of_a_topic_that_may_no_longer_be_read_cannot_be_acknowledged(place, alice):
    place.revoke("alice")
    assert alice.acknowledge((0, 0, ACCEPT)) == TOPIC_DENIED
    answer = alice.fetch(acks=[(0, 0, ACCEPT)], wait_ms=0)
    (part,) = answer.responses[0].partitions
    assert (part.acknowledge_error_code, part.error_code) == (TOPIC_DENIED, TOPIC_DENIED)
    place.allow("alice")
    assert alice.acknowledge((0, 0, ACCEPT)) == 0


@pytest.mark.parametrize("epoch", [1, -1, 7], ids=["next", "final", "wrong"])
@pytest.mark.parametrize("user", ["bob", "alice"])
def test_a_share_session_belongs_to_its_connection(place, alice, user, epoch):
    if user == "bob":
        place.allow("bob", kind=GROUP)
        place.allow("bob")
    other = place.member(user)
    place.produce(b"second")
    with contextlib.closing(other):
        assert other.fetch(named=False, wait_ms=0, epoch=epoch).error_code == NO_SESSION
        assert other.acknowledge((0, 0, ACCEPT), epoch=epoch) == NO_SESSION
    alice.fetch(named=False, wait_ms=0)
    assert alice.values() == [(b"second", 1)]
    assert alice.acknowledge((0, 1, ACCEPT)) == 0


def test_nobody_takes_the_share_session_of_another_user(place, alice):
    place.allow("bob", kind=GROUP)
    place.allow("bob")
    other = place.member("bob")
    with contextlib.closing(other):
        assert other.fetch(wait_ms=0).error_code == GROUP_DENIED
    assert alice.acknowledge((0, 0, ACCEPT)) == 0


def test_a_user_takes_up_a_share_session_on_another_connection_by_opening_it_anew(place, alice):
    again = place.member("alice")
    waiting = Waiting(lambda: alice.fetch(named=False, wait_ms=LONG_MS))
    place.wait_read()
    with contextlib.closing(again):
        assert again.fetch(wait_ms=0).error_code == 0
        assert again.acknowledge((0, 0, ACCEPT)) == 0
        place.produce(b"second")
        # Whoever waits in the session that was replaced is not served any more.
        assert waiting.result().error_code == NO_SESSION and alice.values() == []
        again.fetch(named=False)
        assert again.values() == [(b"second", 1)]


def test_a_topic_made_anew_under_its_name_is_not_in_the_session(place, alice):
    place.delete(place.name)
    place.create(place.name)
    place.produce(b"of the new topic")
    assert codes(alice.fetch(named=False, wait_ms=0)) == [UNKNOWN_ID]
    place.revoke("alice")
    assert codes(alice.fetch(named=False, wait_ms=0)) == [UNKNOWN_ID]


def test_two_users_of_one_queue_are_each_served_what_they_may_read(place, alice):
    place.allow("bob", kind=GROUP)
    place.allow("bob")
    bob = place.member("bob", "another")
    with contextlib.closing(bob):
        bob.beat(place.name)
        bob.fetch(wait_ms=0)
        place.revoke("alice")
        place.produce(b"second")
        bob.fetch(named=False)
        assert bob.values() == [(b"second", 1)]
        assert codes(alice.fetch(named=False, wait_ms=0)) == [TOPIC_DENIED]
        assert bob.acknowledge((1, 1, ACCEPT)) == 0


def test_after_a_restart_there_are_no_sessions_and_what_is_opened_is_checked(tmp_path):
    for user in USERS:
        offline.add_user(tmp_path, user, f"password of {user}")
    with running_broker(tmp_path, authenticate=True, super_users="admin") as broker:
        place = Place(broker, "restarted")
        place.allow("alice", kind=GROUP)
        place.allow("alice")
        member = place.member("alice")
        member.beat(place.name)
        place.produce(b"first")
        member.fetch()
        assert member.values() == [(b"first", 1)]
        place.revoke("alice")
    with running_broker(tmp_path, authenticate=True, super_users="admin") as broker:
        place.broker = broker
        place.admin = place.channel("admin")
        again = place.member("alice")
        assert again.fetch(named=False, wait_ms=0, epoch=1).error_code == NO_SESSION
        assert codes(again.fetch(wait_ms=0)) == [TOPIC_DENIED]
        assert again.acknowledge((0, 0, ACCEPT)) == TOPIC_DENIED
        place.allow("alice")
        assert again.acknowledge((0, 0, ACCEPT)) == 0


# --- fetches --------------------------------------------------------------------------------------


def fetched(channel, topic, offset, *, wait_ms=0, min_bytes=1):
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    wanted = {"max_wait": wait_ms, "min_bytes": min_bytes, "topics": [{"topic": topic, "partitions": [part]}]}
    answer = channel.request(Api.FETCH, 11, wanted, wait_ms=wait_ms)
    return answer.responses[0].partitions[0]


def test_a_fetch_that_waits_gets_nothing_appended_after_the_revocation(place):
    place.allow("alice")
    channel = place.channel("alice")
    waiting = Waiting(lambda: fetched(channel, place.name, 0, wait_ms=LONG_MS))
    place.wait_read()
    place.revoke("alice")
    place.produce(b"first")
    answer = waiting.result()
    assert answer.error_code == TOPIC_DENIED and not answer.records
    assert answer.high_watermark == -1


def test_a_fetch_that_has_found_something_and_waits_for_more_loses_it_with_the_permission(place):
    place.allow("alice")
    place.produce(b"first")
    channel = place.channel("alice")
    waiting = Waiting(lambda: fetched(channel, place.name, 0, wait_ms=LONG_MS, min_bytes=5000))
    place.wait_read()
    place.revoke("alice")
    place.produce(b"x" * 6000)
    answer = waiting.result()
    assert answer.error_code == TOPIC_DENIED and not answer.records


def test_a_fetch_session_is_nowhere_to_be_found(place):
    place.allow("alice")
    channel = place.channel("alice")
    wanted = {"max_wait": 0, "min_bytes": 0, "session_id": 1, "session_epoch": 1, "topics": []}
    assert channel.request(Api.FETCH, 11, wanted).error_code == 70


# --- producers ------------------------------------------------------------------------------------


def test_a_batch_that_is_looked_into_is_not_appended_once_writing_is_revoked(place):
    """A compressed batch is inspected on a thread; the permission goes while it is there."""
    place.delete(place.name)
    place.create(place.name, {"name": "cleanup.policy", "value": "compact"})
    place.allow("alice", operation=WRITE)
    thread, free = place.broker.services.inspector._thread, threading.Event()
    thread.submit(free.wait, 30)  # busy with somebody else's batch
    channel = place.channel("alice")
    batch = encode_batch([Record(0, int(time.time() * 1000), b"key", bytes(1 << 20))], codec=1)
    waiting = Waiting(lambda: produced(channel, place.name, batch))
    wait(lambda: thread._work_queue.qsize() == 1)
    place.revoke("alice", operation=WRITE)
    free.set()
    assert waiting.result() == TOPIC_DENIED
    assert place.broker.services.topics.partition(place.name, 0).log.high_watermark == 0


# --- users ----------------------------------------------------------------------------------------


def test_the_share_session_of_a_removed_user_ends_and_its_records_are_delivered_to_others(place, broker):
    place.allow("carol", kind=GROUP)
    place.allow("carol")
    place.allow("bob", kind=GROUP)
    place.allow("bob")
    made = {"name": "carol", "mechanism": SCRAM_SHA_256, "iterations": 4096, "salt": b"salt"}
    salted = hashlib.pbkdf2_hmac("sha256", b"password of carol", b"salt", 4096)
    upsert = {"deletions": [], "upsertions": [{**made, "salted_password": salted}]}
    assert place.admin.request(Api.ALTER_USER_SCRAM_CREDENTIALS, 0, upsert).results[0].error_code == 0
    carol, bob = place.member("carol"), place.member("bob", "another")
    carol.beat(place.name)
    bob.beat(place.name)
    place.produce(b"first")
    carol.fetch()
    assert carol.values() == [(b"first", 1)]
    gone = {"deletions": [{"name": "carol", "mechanism": SCRAM_SHA_256}], "upsertions": []}
    assert place.admin.request(Api.ALTER_USER_SCRAM_CREDENTIALS, 0, gone).results[0].error_code == 0
    with pytest.raises(RetriableError):
        carol.fetch(named=False, wait_ms=LONG_MS)
    bob.fetch()
    assert bob.values() == [(b"first", 2)]
    bob.close()


# --- groups that wait for their members -----------------------------------------------------------


class ClassicMember:
    """A member of a classic group that joins and syncs when it is told to."""

    def __init__(self, place, user):
        self.place, self.user, self.channel = place, user, place.channel(user)
        self.member_id = ""
        self.generation = -1

    def join(self):
        fields = {
            "group_id": self.place.name,
            "session_timeout": LONG_MS,
            "rebalance_timeout": LONG_MS,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": f"of {self.user}".encode()}],
        }
        answer = self.channel.request(Api.JOIN_GROUP, 5, fields, wait_ms=LONG_MS)
        if answer.error_code == MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return self.join()
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, **assignments):
        given = [{"member_id": name, "assignment": each} for name, each in assignments.items()]
        fields = {**self._named(), "assignments": given}
        return self.channel.request(Api.SYNC_GROUP, 3, fields, wait_ms=LONG_MS)

    def heartbeat(self):
        return self.channel.request(Api.HEARTBEAT, 3, self._named()).error_code

    def _named(self):
        group = {"group_id": self.place.name, "generation_id": self.generation}
        return {**group, "member_id": self.member_id}


MEMBER_ID_REQUIRED, REBALANCING = 79, 27


@pytest.fixture
def members(place):
    """Bob, who leads the group and has his assignment, and Alice, who is not in it yet."""
    for user in ("alice", "bob"):
        place.allow(user, kind=GROUP)
    bob, alice = ClassicMember(place, "bob"), ClassicMember(place, "alice")
    assert bob.join().error_code == 0
    assert bob.sync(**{bob.member_id: b"all"}).assignment == b"all"
    yield bob, alice
    bob.channel.close()
    alice.channel.close()


def test_a_member_that_waits_to_join_learns_nothing_of_the_group_after_the_revocation(place, members):
    bob, alice = members
    waiting = Waiting(alice.join)
    wait(lambda: bob.heartbeat() == REBALANCING)
    place.revoke("alice", kind=GROUP)
    joined = bob.join()
    assert joined.error_code == 0
    answer = waiting.result()
    assert (answer.error_code, answer.members, answer.generation_id) == (GROUP_DENIED, (), -1)
    wait(lambda: bob.heartbeat() == REBALANCING)  # she is out, and holds nobody up
    again = bob.join()
    assert [each.member_id for each in again.members] == [bob.member_id]
    assert bob.sync(**{bob.member_id: b"all"}).assignment == b"all"


def test_a_member_that_waits_for_its_assignment_gets_none_after_the_revocation(place, members):
    bob, alice = members
    waiting = Waiting(alice.join)
    wait(lambda: bob.heartbeat() == REBALANCING)
    assert bob.join().error_code == 0
    assert waiting.result().error_code == 0
    parked = place.broker.services.groups._store._parked
    waiting = Waiting(alice.sync)
    wait(lambda: parked)
    place.revoke("alice", kind=GROUP)
    assert bob.sync(**{bob.member_id: b"half", alice.member_id: b"secret"}).assignment == b"half"
    answer = waiting.result()
    assert (answer.error_code, bytes(answer.assignment)) == (GROUP_DENIED, b"")
    wait(lambda: bob.heartbeat() == REBALANCING)
    assert [each.member_id for each in bob.join().members] == [bob.member_id]
