"""Whatever the subscriptions: every wanted partition once, only to subscribers, evenly, moving little."""

from uuid import UUID

import hypothesis.strategies as st
from hypothesis import given

from headrace.groups.consumer.assignors import ASSIGNORS, Subscriber, assign_range, assign_uniform

TOPICS = [UUID(int=number) for number in range(1, 5)]
counts_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)


@st.composite
def groups(draw, *, alike=False):
    counts = draw(counts_of_topics)
    some_topics = st.frozensets(st.sampled_from(sorted(counts)))
    common = frozenset(draw(st.lists(st.sampled_from(sorted(counts)), min_size=1)))
    members = {}
    for number in range(draw(st.integers(1, 6))):
        topics = common if alike else draw(some_topics)
        had = draw(st.frozensets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 10)), max_size=8))
        members[f"m{number}"] = Subscriber(order=f"m{number}", topics=topics, had=had)
    return members, counts


@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_wanted_partition_goes_to_exactly_one_subscriber(group, name):
    members, counts = group
    assignment = ASSIGNORS[name](members, counts)
    given_out = [(key, partition) for key, share in assignment.items() for partition in share]
    assert all(partition[0] in members[key].topics for key, partition in given_out)
    wanted = {topic for member in members.values() for topic in member.topics}
    expected = sorted((topic, index) for topic in wanted for index in range(counts[topic]))
    assert sorted(partition for _, partition in given_out) == expected


@given(groups(alike=True))
def test_equal_subscriptions_get_equal_shares(group):
    loads = [len(share) for share in assign_uniform(*group).values()]
    assert max(loads) - min(loads) <= 1


@given(groups())
def test_no_single_move_would_make_uniform_shares_more_even(group):
    members, counts = group
    shares = assign_uniform(members, counts)
    for giver, share in shares.items():
        for topic, _ in share:
            takers = [key for key in members if topic in members[key].topics]
            assert all(len(shares[taker]) + 1 >= len(shares[giver]) for taker in takers)


@given(groups())
def test_a_uniform_assignment_that_is_in_force_stays(group):
    members, counts = group
    shares = assign_uniform(members, counts)
    kept = {key: Subscriber(order=m.order, topics=m.topics, had=shares[key]) for key, m in members.items()}
    assert assign_uniform(kept, counts) == shares


@given(st.integers(1, 20), st.integers(1, 6))
def test_range_splits_topics_of_equal_size_alike(count, size):
    members = {
        f"m{n}": Subscriber(order=f"m{n}", topics=frozenset(TOPICS[:2]), had=frozenset()) for n in range(size)
    }
    for share in assign_range(members, {TOPICS[0]: count, TOPICS[1]: count}).values():
        parts = [{index for topic, index in share if topic == wanted} for wanted in TOPICS[:2]]
        assert parts[0] == parts[1]
