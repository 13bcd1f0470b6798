"""Source transactions stay whole: money that moves between two tables is never missing in a view."""

import contextlib
import json
import random
from collections import defaultdict

import pytest
from app_runs import TIMEOUT_S, catch_up, new_topic

from headrace import App
from headrace.client import producer
from headrace.client.topics import TopicSettings, ensure_topics
from headrace.views import open_store

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]

ACCOUNTS = 6
EACH = 100
FIELDS = "id long, owner string, balance long"


class Bank:
    """A source with two tables, current and savings; each transaction moves money from one to the other."""

    def __init__(self, log, name):
        self.topics = {"current": f"{name}.current", "savings": f"{name}.savings"}
        self.transactions = f"{name}.transaction"
        self._log = log
        self._producer = producer(log, **{"transactional.id": name})
        self._producer.init_transactions(TIMEOUT_S)
        self._ends = defaultdict(dict)
        self.balances = {table: dict.fromkeys(range(ACCOUNTS), EACH) for table in self.topics}

    def open(self):
        self._commit("open", [(table, number) for table in self.topics for number in range(ACCOUNTS)])

    def transfer(self, chance):
        number, amount = chance.randrange(ACCOUNTS), chance.randrange(1, 50)
        one, other = chance.sample(sorted(self.topics), 2)
        self.balances[one][number] -= amount
        self.balances[other][number] += amount
        self._commit(f"transfer {amount}", [(one, number), (other, number)])

    def half_a_transfer(self):
        """Rows of a transaction whose end has not been written."""
        self._producer.begin_transaction()
        self._change("current", 0, balance=-1000)
        assert self._producer.flush(TIMEOUT_S) == 0
        self._producer.commit_transaction(TIMEOUT_S)

    def _commit(self, name, changed):
        self._producer.begin_transaction()
        for table, number in changed:
            self._change(table, number, balance=self.balances[table][number])
        assert self._producer.flush(TIMEOUT_S) == 0
        end = {
            "status": "END",
            "id": name,
            "event_count": len(changed),
            "offsets": {
                topic: {str(p): end for p, end in each.items()} for topic, each in self._ends.items()
            },
        }
        self._producer.produce(self.transactions, json.dumps(end).encode(), key=b"{}", partition=0)
        self._producer.commit_transaction(TIMEOUT_S)

    def _change(self, table, number, *, balance):
        row = {"id": number, "owner": f"owner {number % 2}", "balance": balance}
        value = {"before": None, "after": row, "op": "u", "source": {"ts_ms": 1}}
        key = json.dumps({"id": number}).encode()
        topic = self.topics[table]
        self._producer.produce(topic, json.dumps(value).encode(), key=key, on_delivery=self._delivered)

    def _delivered(self, error, message):
        assert error is None, error
        ends = self._ends[message.topic()]
        ends[message.partition()] = max(ends.get(message.partition(), 0), message.offset() + 1)


def bank_views(bank, store):
    app = App(f"app-{bank.transactions}", store=store)
    common = {"key": "id", "format": "debezium", "partitions": 3, "transactions": bank.transactions}
    current = app.table(bank.topics["current"], schema=FIELDS, **common)
    savings = (
        app.table(bank.topics["savings"], schema="id long, balance long", **common)
        .with_columns(saved="balance")
        .select("id", "saved")
    )

    @app.view(key="id")
    def wealth():
        return current.join(savings, on="id", how="full").with_columns(total="balance + saved")

    return app


def commits(store, view):
    """The rows of a view after each of its commits."""
    rows, found = {}, {}
    with contextlib.closing(open_store(store)) as opened:
        for change in opened.changes(view, 0):
            key = tuple(change.key.values())
            if change.after is None:
                rows.pop(key, None)
            else:
                rows[key] = change.after
            found[change.batch_id] = list(rows.values())
    return list(found.values())


def test_a_view_never_shows_half_of_a_source_transaction(our_log, spark, tmp_path):
    chance = random.Random(7)
    bank, store = Bank(our_log, new_topic()), f"sqlite:///{tmp_path}/views.db"
    partitions = {**dict.fromkeys(bank.topics.values(), 3), bank.transactions: 1}
    ensure_topics(our_log, {topic: TopicSettings(partitions=n) for topic, n in partitions.items()})
    bank.open()
    for _ in range(8):
        bank.transfer(chance)
    catch_up(bank_views(bank, store), our_log, tmp_path / "data", max_records_per_batch=6)
    for _ in range(4):
        bank.transfer(chance)
    bank.half_a_transfer()
    catch_up(bank_views(bank, store), our_log, tmp_path / "data")
    shown = commits(store, "wealth")
    assert len(shown) > 4  # the limits make for several batches
    for rows in shown:
        assert sorted((row["id"], row["total"]) for row in rows) == [
            (number, 2 * EACH) for number in range(ACCOUNTS)
        ]
    assert {row["id"]: row["saved"] for row in shown[-1]} == bank.balances["savings"]
