"""Who waits for a check of a password, and who is next."""

import asyncio
import contextlib
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.access.authority import Authority
from headrace.broker.access.password_checks import CrowdedError, PasswordChecks, ProvenPasswords, WaitingLine
from headrace.broker.access.scram import Mechanism, RefusedError, credential_from_password

SHA256 = Mechanism.SCRAM_SHA_256


def line_of(*waiting, most=100):
    line = WaitingLine(most)
    for what, address, name in waiting:
        line.add(what, address, name)
    return line


def guesses(count, address="10.0.0.1", name="admin"):
    return [(f"guess {number}", address, name) for number in range(count)]


# --- the line -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "name"),
    [("10.0.0.2", "alice"), ("10.0.0.1", "alice"), ("10.0.0.2", "admin"), ("10.0.0.1", "admin")],
    ids=["elsewhere", "from the address of the guesses", "of the name guessed at", "not to be told apart"],
)
@pytest.mark.parametrize("crowd", [1, 99, 1000])
def test_a_login_is_next_however_many_guess(crowd, address, name):
    line = line_of(*guesses(crowd), ("right", address, name))
    assert line.take() == "right"


@pytest.mark.parametrize("most", [2, 3, 100])
def test_a_login_before_the_guesses_is_kept_and_soon_served(most):
    line = line_of(("right", "10.0.0.2", "alice"), *guesses(1000), most=most)
    assert len(line) == most
    served = [line.take() for _ in range(len(line))]
    assert "right" in served[:2]


def test_guesses_at_one_name_from_everywhere_hold_up_no_other_name():
    crowd = [(number, f"10.0.{number // 250}.{number % 250}", "admin") for number in range(1000)]
    line = line_of(("right", "10.9.9.9", "alice"), *crowd)
    assert line.take() == "right"


def test_guesses_at_many_names_from_one_address_hold_up_nobody_elsewhere():
    crowd = [(number, "10.0.0.1", f"name-{number}") for number in range(1000)]
    line = line_of(("right", "10.9.9.9", "name-7"), *crowd)
    assert line.take() == "right"


def test_all_addresses_of_one_network_are_one_crowd():
    crowd = [(number, f"2001:db8::{number:x}", f"name-{number}") for number in range(50)]
    line = line_of(("right", "2001:db8:0:1::1", "alice"), *crowd)
    assert line.take() == "right"
    mapped = line_of(("right", "10.0.0.2", "alice"), ("a", "::ffff:10.0.0.1", "a"), ("b", "10.0.0.1", "b"))
    assert mapped.take() == "right"


def test_who_leaves_is_not_served():
    line = line_of(("a", "1", "a"), ("b", "2", "b"))
    line.remove("b")
    line.remove("b")
    assert (line.take(), line.take(), len(line)) == ("a", None, 0)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), st.just("take"), st.just("leave")
        )
    ),
    st.integers(1, 5),
)
def test_everybody_leaves_the_line_once(steps, most):
    line, waiting, number = WaitingLine(most), set(), 0
    for step in steps:
        if step == "take":
            gone = line.take()
            assert (gone is None) == (not waiting)
            waiting.discard(gone)
        elif step == "leave" and waiting:
            line.remove(waiting.pop())
        elif step != "leave":
            number += 1
            token = f"{number}"
            waiting.add(token)
            waiting.discard(line.add(token, *step))
        assert len(line) == len(waiting) <= most
    assert sorted(filter(None, iter(line.take, None))) == sorted(waiting)
    assert not line._at and not line._as  # what was counted is forgotten


# --- on the thread --------------------------------------------------------------------------------


async def turns():
    for _ in range(10):
        await asyncio.sleep(0)


def test_checks_run_one_at_a_time_and_who_finds_no_room_is_told():
    async def run():
        checks, free, order = PasswordChecks(most_waiting=2), threading.Event(), []
        first = asyncio.create_task(checks.run(lambda: free.wait(30), address="1", name="a"))
        await turns()
        others = [
            asyncio.create_task(checks.run(lambda n=n: order.append(n), address="1", name="a"))
            for n in range(3)
        ]
        await turns()
        with pytest.raises(CrowdedError):
            await others[0]
        assert order == []
        free.set()
        await asyncio.gather(first, *others[1:])
        checks.close()
        return order

    assert asyncio.run(run()) == [2, 1]


@pytest.mark.parametrize("leaving", ["while it is checked", "while it waits", "in its turn"])
def test_a_client_that_leaves_holds_up_nobody(leaving):
    async def run():
        checks, free = PasswordChecks(), threading.Event()
        first = asyncio.create_task(checks.run(lambda: free.wait(30), address="1", name="a"))
        await turns()
        second = asyncio.create_task(checks.run(lambda: "second", address="1", name="a"))
        await turns()
        if leaving == "while it is checked":
            first.cancel()
            free.set()
            assert await second == "second"
        elif leaving == "while it waits":
            second.cancel()
            await turns()
            free.set()
            assert await first
        else:
            free.set()
            await first  # from here on it is the second one's turn
            second.cancel()
        third = await asyncio.wait_for(checks.run(lambda: "third", address="2", name="b"), 30)
        checks.close()
        return third

    assert asyncio.run(run()) == "third"


def test_a_check_that_fails_lets_the_next_one_run():
    def fail():
        raise RefusedError("no")

    async def run():
        checks = PasswordChecks()
        failing = [checks.run(fail, address="1", name="a") for _ in range(3)]
        found = await asyncio.gather(*failing, return_exceptions=True)
        assert [type(each) for each in found] == [RefusedError] * 3
        return await checks.run(lambda: "right", address="1", name="a")

    assert asyncio.run(run()) == "right"


# --- passwords that were right --------------------------------------------------------------------


def test_a_password_that_was_right_is_known_until_the_user_has_another():
    proven = ProvenPasswords()
    held, other = {SHA256: "one"}, {SHA256: "two"}
    proven.note("alice", held, "secret")
    assert proven.knows("alice", held, "secret")
    for user, credentials, password in (
        ("alice", held, "Secret"),
        ("alice", other, "secret"),
        ("bob", held, "secret"),
        ("alic", held, "esecret"),
    ):
        assert not proven.knows(user, credentials, password)
    proven.keep_only({"alice": held})
    assert len(proven) == 1
    proven.keep_only({"alice": other})
    assert len(proven) == 0


# --- an attack ------------------------------------------------------------------------------------


class Attacked:
    """An authority whose thread checks a guess that takes as long as the test wants, with 500 behind it."""

    def __init__(self, folder):
        self.authority = Authority(enforced=True, super_users=frozenset())
        self.answered = []
        self._free = threading.Event()
        self._folder = folder

    async def log_in(self, password="right"):
        session = self.authority.session("127.0.0.1", asyncio.Transport())
        session.login.choose("PLAIN")
        await self.authority.step(session, f"\0alice\0{password}".encode())
        return session.principal

    async def _guess(self, number):
        with contextlib.suppress(CrowdedError):
            with pytest.raises(RefusedError):
                await self.log_in(f"guess {number}")
            self.answered.append(number)

    @contextlib.asynccontextmanager
    async def going_on(self, *, known_before=False):
        await self.authority.load(self._folder, None)
        credential = credential_from_password(SHA256, "right", b"salt", 4096)
        await self.authority.change(lambda state: state.with_credential("alice", credential))
        if known_before:
            assert await self.log_in() == "User:alice"
        hold = self.authority._checks.run(lambda: self._free.wait(120), address="127.0.0.1", name="alice")
        attack = [asyncio.create_task(each) for each in (hold, *map(self._guess, range(500)))]
        await turns()
        assert self.answered == []
        yield
        self._free.set()
        for task in attack:
            task.cancel()
        await asyncio.gather(*attack, return_exceptions=True)
        self.authority.close()

    def go_on(self):
        """The guess that is being checked is done."""
        self._free.set()


def test_a_right_login_waits_for_the_guess_that_is_being_checked_and_no_other(tmp_path):
    async def run():
        attacked = Attacked(tmp_path)
        async with attacked.going_on():
            login = asyncio.create_task(attacked.log_in())
            await turns()
            assert not login.done()
            login.add_done_callback(lambda _: attacked.answered.append("right"))
            attacked.go_on()
            assert await login == "User:alice"
        return attacked.answered

    assert asyncio.run(run())[0] == "right"


def test_who_has_logged_in_before_waits_for_none(tmp_path):
    async def run():
        attacked = Attacked(tmp_path)
        async with attacked.going_on(known_before=True):
            assert await asyncio.wait_for(attacked.log_in(), 60) == "User:alice"
            assert attacked.answered == []

    asyncio.run(run())


def test_who_administers_waits_for_none_and_what_was_right_is_so_no_more(tmp_path):
    async def run():
        attacked = Attacked(tmp_path)
        async with attacked.going_on(known_before=True):
            gone = attacked.authority.change(lambda state: state.without_credential("alice", SHA256))
            await asyncio.wait_for(gone, 60)
            assert attacked.answered == []
            login = asyncio.create_task(attacked.log_in())
            await turns()
            attacked.go_on()
            with pytest.raises(RefusedError):
                await login

    asyncio.run(run())
