"""Dead letters take permissions: no topic is made or chosen by who may not, and nothing is lost for it."""

import asyncio
import contextlib
import itertools

import pytest
from access.places import ALL, CREATE, GROUP, READ, TOPIC, TOPIC_DENIED, USERS, WRITE, Place, wait
from queue_member import REJECT

from headrace.broker.access import offline
from headrace.broker.watch.health import health
from headrace.testing.broker import running_broker

ALTER_CONFIGS = 11
NAME = "errors.deadletterqueue.topic.name"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    data = tmp_path_factory.mktemp("dead-letters")
    for user in USERS:
        offline.add_user(data, user, f"password of {user}")
    with running_broker(data, authenticate=True, super_users="admin") as running:
        yield running


@pytest.fixture
def place(broker):
    made = Place(broker, f"queue-{next(_numbers)}")
    for user in ("alice", "bob"):
        made.allow(user, kind=GROUP)
        made.allow(user)
    yield made
    made.admin.close()


def rejected(place, user="alice", *, count=1):
    """A member of the queue who has rejected records."""
    member = place.member(user, f"member of {user}")
    assert member.beat(place.name).error_code == 0
    for number in range(count):
        place.produce(b"%d" % number)
        member.fetch(named=number == 0)
        offset = member.got[0][1]
        assert member.acknowledge((offset, offset, REJECT)) == 0
    return member


def letters(place, topic=None):
    """How many dead letters there are; None without a topic of them."""
    found = place.broker.services.topics.partition(topic or f"dlq.{place.name}", 0)
    return None if found is None else found.log.high_watermark


def waits(place):
    """Waits until the broker says that the queue's dead letters wait; why they do."""
    wait(lambda: place.name in place.broker.services.dead_letters.unwritten)
    return place.broker.services.dead_letters.unwritten[place.name]


def test_no_dead_letter_topic_is_made_for_who_may_not_create_it(place, caplog):
    with contextlib.closing(rejected(place)):
        why = waits(place)
        assert f"dlq.{place.name}" in why and "create" in why
        assert letters(place) is None
        assert f"dead letters of {place.name} cannot be written" in caplog.text
        # The one rejected waits, and is delivered to nobody.
        other = place.member("bob", "another")
        other.beat(place.name)
        other.fetch(wait_ms=0)
        assert other.values() == []
        other.close()
        place.create(f"dlq.{place.name}")
        wait(lambda: letters(place) == 1)
        wait(lambda: place.name not in place.broker.services.dead_letters.unwritten)


def test_dead_letters_that_wait_are_named_by_health(place):
    with contextlib.closing(rejected(place)):
        waits(place)
        found = asyncio.run(health_of(place.broker))
        assert [each for each in found.warnings if place.name in each]
        place.create(f"dlq.{place.name}")
        wait(lambda: letters(place) == 1)


async def health_of(broker):
    """Asked on a loop of its own: the broker's is busy with itself."""
    return await health(broker.services)


@pytest.mark.parametrize("kind", ["topic", "cluster"])
def test_a_member_who_may_create_has_the_topic_made(place, kind):
    name = {"topic": f"dlq.{place.name}", "cluster": "kafka-cluster"}[kind]
    resource = {"topic": TOPIC, "cluster": 4}[kind]
    with contextlib.closing(rejected(place)):
        waits(place)
        place.allow("alice", CREATE, resource, name)
        wait(lambda: letters(place) == 1)
    place.revoke("alice", CREATE, resource, name)


def test_it_is_enough_that_one_of_two_members_may_create(place):
    place.allow("bob", CREATE, TOPIC, f"dlq.{place.name}")
    with contextlib.closing(rejected(place, count=3)):
        waits(place)
        bob = place.member("bob", "another")
        bob.beat(place.name)
        wait(lambda: letters(place) == 3)
        bob.close()


def test_a_permission_to_create_that_is_revoked_before_it_is_needed_makes_no_topic(place):
    place.allow("alice", CREATE, TOPIC, f"dlq.{place.name}")
    member = place.member("alice", "member of alice")
    member.beat(place.name)
    place.revoke("alice", CREATE, TOPIC, f"dlq.{place.name}")
    member.close()
    with contextlib.closing(rejected(place)):
        waits(place)
        assert letters(place) is None
        place.create(f"dlq.{place.name}")
        wait(lambda: letters(place) == 1)


def test_a_queue_whose_dead_letters_wait_holds_up_no_other(place, broker):
    other = Place(broker, f"queue-{next(_numbers)}")
    other.allow("bob", kind=GROUP)
    other.allow("bob")
    other.create(f"dlq.{other.name}")
    with contextlib.closing(rejected(place)):
        waits(place)
        with contextlib.closing(rejected(other, "bob")):
            wait(lambda: letters(other) == 1)
        assert letters(place) is None
    other.admin.close()


def test_dead_letters_wait_over_a_restart(tmp_path):
    for user in USERS:
        offline.add_user(tmp_path, user, f"password of {user}")
    settings = {"authenticate": True, "super_users": "admin"}
    with running_broker(tmp_path, **settings) as broker:
        place = Place(broker, "restarted")
        place.allow("alice", kind=GROUP)
        place.allow("alice")
        rejected(place)
        waits(place)
    with running_broker(tmp_path, **settings) as broker:
        place.broker = broker
        assert "create" in waits(place)
        place.admin = place.channel("admin")
        place.allow("alice", CREATE, TOPIC, "dlq.restarted")  # its member is known from before
        wait(lambda: letters(place) == 1)


def test_a_dead_letter_topic_is_chosen_by_who_may_write_on_it_and_create_it(place):
    chosen = f"dlq.chosen-{place.name}"
    place.allow("alice", ALTER_CONFIGS, GROUP)
    assert place.tell(NAME, chosen, "alice") == TOPIC_DENIED
    place.allow("alice", WRITE, TOPIC, chosen)
    assert place.tell(NAME, chosen, "alice") == TOPIC_DENIED  # it is not there
    place.allow("alice", CREATE, TOPIC, chosen)
    assert place.tell(NAME, chosen, "alice") == 0
    assert letters(place, chosen) == 0
    place.revoke("alice", CREATE, TOPIC, chosen)
    place.revoke("alice", WRITE, TOPIC, chosen)
    assert place.tell("share.delivery.count.limit", "3", "alice") == 0  # which chooses nothing anew
    with contextlib.closing(rejected(place, "bob")):
        wait(lambda: letters(place, chosen) == 1)


def test_whether_a_topic_is_there_is_not_told_to_who_may_not_choose_it(place):
    place.create(f"dlq.there-{place.name}")
    place.allow("alice", ALTER_CONFIGS, GROUP)
    place.allow("alice", CREATE, TOPIC, f"dlq.missing-{place.name}")
    place.allow("alice", CREATE, TOPIC, f"dlq.there-{place.name}")
    for name in ("there", "missing"):
        assert place.tell(NAME, f"dlq.{name}-{place.name}", "alice") == TOPIC_DENIED


def test_a_topic_of_several_queues_takes_the_permission_to_write(broker):
    """The names of groups that no topic can have are changed: `a b` and `a_b` have one topic."""
    place = Place(broker, f"odd-{next(_numbers)}")
    place.create(f"dlq.{place.name}_x")
    topic, place.topic = place.name, place.name
    place.name = f"{topic} x"  # the group's
    place.tell("share.auto.offset.reset", "earliest")
    place.allow("alice", kind=GROUP)
    place.allow("alice", READ, TOPIC, topic)
    member = place.member("alice")
    member.beat(topic)
    group, place.name = place.name, topic
    place.produce(b"first")
    member.fetch()
    assert member.acknowledge((0, 0, REJECT)) == 0
    wait(lambda: group in broker.services.dead_letters.unwritten)
    assert letters(place, f"dlq.{topic}_x") == 0
    place.allow("alice", WRITE, TOPIC, f"dlq.{topic}_x")
    wait(lambda: letters(place, f"dlq.{topic}_x") == 1)
    member.close()
    place.admin.close()


@pytest.mark.parametrize("length", [1, 245])
def test_names_of_the_smallest_and_largest_length_take_permissions_all_the_same(place, length):
    chosen = "dlq." + f"{next(_numbers)}".rjust(length, "x")[-length:]
    place.allow("alice", ALTER_CONFIGS, GROUP)
    assert place.tell(NAME, chosen, "alice") == TOPIC_DENIED
    place.allow("alice", ALL, TOPIC, chosen)
    assert place.tell(NAME, chosen, "alice") == 0
