"""docs/webhooks.md as a reader would try it: its application on Spark, its receiver, its promises."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hook_lives import Log, new_secret
from receivers import Receiver
from test_mail import mailbox  # noqa: F401 - a fixture

PAGE = (Path(__file__).parents[3] / "docs" / "webhooks.md").read_text()
PATIENCE_S = 240  # a micro-batch takes a second, and minutes on a machine that many share
APPLICATION, VERIFY = re.findall(r"```python\n(.*?)```", PAGE, re.S)


class Run:
    """`headrace run` in a process of its own."""

    def __init__(self, folder, environment, *arguments):
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
            env={**os.environ, **environment},
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
        self.log = Log(self.wait_for("log: ").split()[1])
        self.wait_for("running shop")
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0
        self._listener.join(PATIENCE_S)
        self.process.stdout.close()
        self.messages.close()


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("rebuild", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_page_does_what_it_says(tmp_path, mailbox, rebuild):  # noqa: F811
    (tmp_path / "shop.py").write_text(APPLICATION)
    verify = {}
    exec(VERIFY, verify)
    secret = new_secret()
    with Receiver(secret) as receiver:
        environment = {"ORDERS_URL": receiver.url, "ORDERS_SECRET": secret, "ORDERS_SMTP": mailbox.url}
        orders = [{"order_id": f"o-{n}", "region": "north", "amount": 40.0 * n} for n in range(6)]
        with Run(tmp_path, environment) as run:
            run.log.app.name = "shop"
            run.log.send("orders", *orders)
            receiver.wait_for_count(3, PATIENCE_S)
            run.log.wait_for_counts("large-orders.webhook", delivered=3)
            run.log.wait_for_counts("large-orders.email", delivered=3)
        assert sorted(each.data["order_id"] for each in receiver.requests) == ["o-3", "o-4", "o-5"]
        assert {each.source[0] for each in receiver.requests} == {"orders"}
        for request in receiver.requests:
            verify["verify"](secret, request.headers, request.body)
            with pytest.raises(ValueError, match="does not fit"):
                verify["verify"](secret, request.headers, request.body + b" ")
        subjects = sorted(mail["Subject"] for _, mail, _ in mailbox.mails)
        assert subjects == ["Large order o-3", "Large order o-4", "Large order o-5"]
        assert mailbox.mails[0][1].get_content().endswith(" euros in north\r\n")
        if rebuild:
            with Run(tmp_path, environment, "--rebuild") as run:
                run.log.app.name = "shop"
                run.log.wait_for_counts("large-orders.webhook", delivered=3, muted=3, timeout_s=PATIENCE_S)
                run.log.send("orders", {"order_id": "o-9", "region": "south", "amount": 900.0})
                run.log.wait_for_counts("large-orders.webhook", delivered=4, muted=3, timeout_s=PATIENCE_S)
                run.log.wait_for_counts("large-orders.email", delivered=4, muted=3, timeout_s=PATIENCE_S)
            assert len(set(receiver.ids)) == len(receiver.ids) == 4
