"""docs/guides/webhooks.md as a reader would try it: its application on Spark, its receiver, its promises."""

import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from hook_lives import Log, delivering, new_secret
from receivers import Receiver
from test_mail import mailbox  # noqa: F401 - a fixture

from headrace.app.loading import import_app

PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "webhooks.md").read_text()
PATIENCE_S = 240  # a micro-batch takes a second, and minutes on a machine that many share
APPLICATION, VERIFY = re.findall(r"```python\n(.*?)```", PAGE, re.S)


class Run:
    """`headrace run` in a process of its own."""

    def __init__(self, folder, *arguments):
        command = [
            sys.executable,
            "-m",
            "headrace",
            "run",
            str(folder / "shop.py"),
            "--data",
            str(folder / "data"),
        ]
        self.messages = (folder / "run.messages").open("ab")
        self.process = subprocess.Popen(
            [*command, "--no-http", "--json", *arguments],
            stdout=subprocess.PIPE,
            stderr=self.messages,
        )
        self.said, self._heard = [], threading.Condition()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self):
        for line in self.process.stdout:
            with self._heard:
                self.said.append(json.loads(line).get("message", ""))
                self._heard.notify_all()

    def wait_for(self, beginning):
        def found():
            return next((each for each in self.said if each.startswith(beginning)), None)

        with self._heard:
            assert self._heard.wait_for(found, PATIENCE_S), self.said
        return found()

    def __enter__(self):
        try:
            self.log = Log(self.wait_for("log: ").split()[1])
            self.wait_for("running shop")
        except BaseException:
            self.process.kill()  # the processes beside it end with it
            raise
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0
        self._listener.join(PATIENCE_S)
        self.process.stdout.close()
        self.messages.close()


@pytest.fixture
def page(tmp_path, mailbox, monkeypatch):  # noqa: F811
    """The page's application in a file, its receiver and its mail server, and the variables it names."""
    (tmp_path / "shop.py").write_text(APPLICATION)
    secret = new_secret()
    with Receiver(secret) as receiver:
        for name, value in (("URL", receiver.url), ("SECRET", secret), ("SMTP", mailbox.url)):
            monkeypatch.setenv(f"ORDERS_{name}", value)
        yield receiver


def check_what_came(receiver, mails, orders):
    """All of it came, and verifies as the page says."""
    page = {}
    exec(VERIFY, page)
    assert sorted(each.data["order_id"] for each in receiver.requests) == orders
    for request in receiver.requests:
        page["verify"](receiver.secret, request.headers, request.body)
        with pytest.raises(ValueError, match="does not fit"):
            page["verify"](receiver.secret, request.headers, request.body + b" ")
    assert sorted(mail["Subject"] for _, mail, _ in mails) == [f"Large order {each}" for each in orders]
    assert mails[0][1].get_content().endswith(" euros in north\r\n")


def test_the_application_of_the_page_tells_as_it_says(page, mailbox, log, tmp_path):  # noqa: F811
    """Its hooks alone, on records as its query would write them."""
    log.app = import_app(tmp_path / "shop.py")
    log.admin.create_topics([NewTopic("large-orders", 1)])["large-orders"].result(20)
    with delivering(log):
        log.send("large-orders", {"order_id": "o-3", "region": "north", "amount": 120.0}, key="north")
        log.wait_for_counts("large-orders.webhook", delivered=1)
        log.wait_for_counts("large-orders.email", delivered=1)
    check_what_came(page, mailbox.mails, ["o-3"])


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(1800)
def test_the_page_does_what_it_says(page, mailbox, tmp_path):  # noqa: F811
    """With its query on Spark, and a rebuild."""
    orders = [{"order_id": f"o-{n}", "region": "north", "amount": 40.0 * n} for n in range(6)]
    with Run(tmp_path) as run:
        run.log.app = import_app(tmp_path / "shop.py")
        run.log.send("orders", *orders)
        page.wait_for_count(3, PATIENCE_S)
        run.log.wait_for_counts("large-orders.webhook", delivered=3)
        run.log.wait_for_counts("large-orders.email", delivered=3)
    assert {each.source[0] for each in page.requests} == {"orders"}
    check_what_came(page, mailbox.mails, ["o-3", "o-4", "o-5"])
    with Run(tmp_path, "--rebuild") as run:
        run.log.app = import_app(tmp_path / "shop.py")
        run.log.wait_for_counts("large-orders.webhook", PATIENCE_S, delivered=3, muted=3)
        run.log.send("orders", {"order_id": "o-9", "region": "north", "amount": 900.0})
        run.log.wait_for_counts("large-orders.webhook", PATIENCE_S, delivered=4, muted=3)
        run.log.wait_for_counts("large-orders.email", PATIENCE_S, delivered=4, muted=3)
    assert len(set(page.ids)) == len(page.ids) == 4
