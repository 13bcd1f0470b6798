"""Made-up credentials: nothing that a client can see of them tells that nobody has the name."""

from collections import Counter

import pytest

from headrace.broker.access.login import SaslLogin
from headrace.broker.access.scram import DEFAULT_ITERATIONS, SALT_BYTES, Credential, Mechanism, is_password
from headrace.broker.access.state import AccessState

SHA256, SHA512 = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512
NAMES = [f"nobody-{number}" for number in range(2000)]


def held(mechanism, iterations, salt):
    key = bytes(mechanism.key_bytes)
    return Credential(mechanism=mechanism, iterations=iterations, salt=salt, stored_key=key, server_key=key)


def state_of(*credentials, secret=b"secret"):
    state = AccessState(decoy_secret=secret)
    for number, each in enumerate(credentials):
        state = state.with_credential(f"user-{number}", each)
    return state


def forms(state, mechanism):
    made = (state.decoys.credential(mechanism, name) for name in NAMES)
    return Counter((each.iterations, len(each.salt)) for each in made)


@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_decoys_are_the_same_for_a_name_and_differ_between_names_and_secrets(mechanism):
    one = state_of().decoys.credential(mechanism, "nobody")
    assert one == state_of().decoys.credential(mechanism, "nobody")
    assert one.salt != state_of().decoys.credential(mechanism, "nobody else").salt
    assert one.salt != state_of(secret=b"other").decoys.credential(mechanism, "nobody").salt
    assert len(one.stored_key) == len(one.server_key) == mechanism.key_bytes
    assert not is_password(one, "")


@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_without_users_a_decoy_is_as_the_first_user_will_be(mechanism):
    assert forms(state_of(), mechanism) == {(DEFAULT_ITERATIONS, SALT_BYTES): len(NAMES)}


@pytest.mark.parametrize("iterations", [4096, 8192, 1_000_000])
@pytest.mark.parametrize("salt", [b"s", b"\xff" * 8, b"\xfe" * 64, b"\xfd" * 5000], ids=len)
def test_where_all_users_have_one_form_all_decoys_have_it(iterations, salt):
    state = state_of(held(SHA256, iterations, salt))
    assert forms(state, SHA256) == {(iterations, len(salt)): len(NAMES)}
    assert forms(state, SHA512) == {(DEFAULT_ITERATIONS, SALT_BYTES): len(NAMES)}


def test_each_form_is_as_frequent_among_decoys_as_among_users():
    many, few = held(SHA512, 4096, b"\xff" * 16), held(SHA512, 20_000, b"\xff" * 32)
    found = forms(state_of(*[many] * 9, few), SHA512)
    assert found.keys() == {(4096, 16), (20_000, 32)}
    assert found[20_000, 32] == pytest.approx(len(NAMES) / 10, rel=0.25)


def test_a_user_who_comes_changes_only_decoys_that_take_after_the_new_one():
    users = [held(SHA256, 4096, b"\xff" * 16)] * 5 + [held(SHA256, 8192, b"\xff" * 16)] * 5
    before, after = state_of(*users), state_of(*users, held(SHA256, 10_000, b"\xff" * 16))
    changed = 0
    for name in NAMES:
        old, new = before.decoys.credential(SHA256, name), after.decoys.credential(SHA256, name)
        changed += old != new
        assert old == new or new.iterations == 10_000
    assert changed < len(NAMES) / 5


def test_the_decoys_of_users_made_with_kafkas_tools_have_salts_as_those_make_them():
    salts = [b"1qk2wq9u0x3c4v5b6n7m8a9s0d", b"zk2wq9u0x3c4v5b6n7m8a9s0d"]
    state = state_of(*(held(SHA256, 8192, salt) for salt in salts))
    made = [state.decoys.credential(SHA256, name).salt for name in NAMES]
    assert all(0 < int(salt, 36) < 2**130 and salt == salt.lower() for salt in made)
    lengths = Counter(map(len, made))
    assert lengths[26] == pytest.approx(len(NAMES) * (1 - 36**25 / 2**130), rel=0.2)
    assert all(salt[:1] == b"1" for salt in made if len(salt) == 26)
    assert len(set(made)) == len(NAMES)


def test_a_password_of_an_unknown_name_is_held_against_what_users_have():
    state = state_of(held(SHA512, 5000, b"\xff" * 16))
    made = state.decoys.for_password("nobody")
    assert (made.mechanism, made.iterations) == (SHA512, 5000)
    both = state.with_credential("user-0", held(SHA256, 6000, b"\xff" * 16))
    assert both.decoys.for_password("nobody").iterations == 6000


def test_more_forms_than_are_drawn_from_are_the_frequent_ones():
    rare = [held(SHA256, 5000 + number, b"\xff" * 16) for number in range(100)]
    often = [held(SHA256, 4096, b"\xff" * 16)] * 50
    found = forms(state_of(*rare, *often), SHA256)
    assert len(found) == 32
    assert found.most_common(1)[0][0] == (4096, 16)


def test_challenges_of_known_and_unknown_names_cannot_be_told_apart_by_their_form():
    kinds = [held(SHA256, 4096, b"\xff" * 16), held(SHA256, 20_000, b"\xff" * 32)]
    state = state_of(*(kinds[number % 2] for number in range(10)))

    def challenge(name):
        login = SaslLogin((SHA256.sasl_name,), lambda: "nonce")
        login.choose(SHA256.sasl_name)
        _, salt, iterations = login.step(state, f"n,,n={name},r=abc".encode()).message.split(b",")
        return len(salt), iterations

    known = {challenge(f"user-{number}") for number in range(10)}
    assert {challenge(name) for name in NAMES[:200]} == known
