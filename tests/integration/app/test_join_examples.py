"""The examples of joins: invoices with the rate of their time, and timelines that follow every change."""

import json
from itertools import permutations

import duckdb
import pyarrow as pa
import pytest
from tools.example_runs import START, folder

from headrace.testing import run_app

RATES = [("de", 19.0, "09:00"), ("de", 16.0, "10:00"), ("de", 7.0, "11:00"), ("es", 21.0, "12:00")]
SALES = {
    "s1": ("de", 10.0, "09:10"),
    "s2": ("de", 20.0, "10:30"),
    "s3": ("de", 30.0, "09:50"),
    "s4": ("de", 40.0, "11:30"),
    "s5": ("fr", 50.0, "10:00"),
}


def moment(clock):
    return f"2026-01-05T{clock}:00Z"


def send_rate(run, number):
    country, percent, since = RATES[number]
    run.send("tax-rates", {"country": country, "percent": percent, "since": moment(since)}, at=moment(since))


def send_sale(run, name, partition=0):
    country, amount, clock = SALES[name]
    sale = {"sale": name, "country": country, "amount": amount, "sold_at": moment(clock)}
    run.send("sales", sale, partition=partition, at=moment(clock))


def rates_of(run):
    return {row["sale"]: row["percent"] for row in run.rows("invoices")}


def test_every_invoice_has_the_rate_valid_at_its_sale_however_its_topics_interleave():
    expected = {"s1": 19.0, "s2": 16.0, "s3": 19.0, "s4": 7.0, "s5": None}
    found = []
    for order in [*permutations(["rates", "s1 s2", "s3 s4 s5"])]:
        with run_app(folder(13) / "app.py", start=START) as run:
            for each in order:
                if each == "rates":
                    for number in range(3):
                        send_rate(run, number)
                else:
                    for name in each.split():
                        send_sale(run, name, partition=int(name == "s3"))
                run.batch()
            run.stop_input()
            found.append(run.table("invoices"))
            assert rates_of(run) == expected, order
    assert all(each.equals(found[0]) for each in found)


def test_a_rate_that_comes_late_corrects_the_invoices_of_its_time():
    with run_app(folder(13) / "app.py", start=START) as run:
        send_rate(run, 0)
        send_rate(run, 1)
        send_sale(run, "s4")
        run.batch()
        assert rates_of(run) == {}  # a rate of 11:30 or before may still come
        send_rate(run, 3)
        run.batch()
        assert rates_of(run) == {"s4": 16.0}
        send_rate(run, 2)
        run.batch()
        assert rates_of(run) == {"s4": 7.0}


POSTS = pa.schema(
    [("post", pa.int64()), ("author", pa.string()), ("text", pa.string()), ("posted_at", pa.string())]
)
FOLLOWS = pa.schema([("follower", pa.string()), ("author", pa.string())])
TIMELINES = """
select follower, post, text from follows join posts using (author)
qualify row_number() over (partition by follower order by posted_at desc, follower, author, post) <= 3
order by follower, post
"""


class Network:
    """Who follows whom and what they wrote, told to the application and kept beside it."""

    def __init__(self, run):
        self.run, self.posts, self.follows = run, {}, {}
        self.database = duckdb.connect()

    def post(self, number, author, text, clock):
        row = {"post": number, "author": author, "text": text, "posted_at": moment(clock)}
        self.posts[number] = row
        self.run.send("posts", row, key=json.dumps({"post": number}), partition=number % 2)

    def delete(self, number):
        del self.posts[number]
        self.run.send("posts", None, key=json.dumps({"post": number}), partition=number % 2)

    def follow(self, follower, author, *, is_followed=True):
        row = {"follower": follower, "author": author}
        self.follows.pop((follower, author), None)
        if is_followed:
            self.follows[follower, author] = row
        self.run.send("follows", row if is_followed else None, key=json.dumps(row))

    def check(self):
        self.run.batch()
        self.database.register("posts", pa.Table.from_pylist(list(self.posts.values()), schema=POSTS))
        self.database.register("follows", pa.Table.from_pylist(list(self.follows.values()), schema=FOLLOWS))
        wanted = self.database.sql(TIMELINES).fetchall()
        rows = self.run.rows("timelines")
        assert sorted((row["follower"], row["post"], row["text"]) for row in rows) == wanted
        return wanted


@pytest.fixture
def network():
    with run_app(folder(12) / "app.py", start=START) as run:
        yield Network(run)


def test_a_timeline_follows_posts_edits_deletes_follows_and_unfollows(network):
    network.follow("eve", "ada")
    network.follow("eve", "bob")
    network.follow("joe", "ada")
    for number, author in enumerate(["ada", "bob", "ada", "bob", "ada"]):
        network.post(number, author, f"post {number}", f"09:1{number}")
    assert network.check() == [
        ("eve", 2, "post 2"), ("eve", 3, "post 3"), ("eve", 4, "post 4"),
        ("joe", 0, "post 0"), ("joe", 2, "post 2"), ("joe", 4, "post 4"),
    ]  # fmt: skip
    network.delete(4)  # the next older one takes its place
    network.post(2, "ada", "post 2, edited", "09:12")
    assert ("eve", 1, "post 1") in network.check()
    network.follow("eve", "bob", is_followed=False)
    network.follow("joe", "bob")
    assert [post for follower, post, _ in network.check() if follower == "eve"] == [0, 2]
    network.follow("eve", "ada", is_followed=False)
    network.delete(0)
    network.post(5, "bob", "post 5", "09:15")
    assert all(follower == "joe" for follower, _, _ in network.check())
