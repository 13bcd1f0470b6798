"""Hooks at work in a test: in this process, or as the real command in one of its own."""

import asyncio
import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace import App
from headrace.app.status.description import AppDescription, StreamDescription, write_description
from headrace.cli.main import run as command_line
from headrace.client import Connection
from headrace.hooks.deliverer import Deliverer
from headrace.hooks.log.state_topic import list_hooks

FAST = {"first_wait": "5 ms", "longest_wait": "20 ms"}
LOCAL = {"allow": "127.0.0.1", "secret": "env:HOOK_SECRET", **FAST}


def new_secret():
    return "whsec_" + base64.b64encode(os.urandom(32)).decode()


class Log:
    """A broker as plain clients see it."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.connection = Connection(bootstrap_servers=bootstrap, retry_timeout_ms=60_000)
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.app = App(f"app-{uuid.uuid4().hex[:8]}")

    def topic(self, name="t", partitions=1, **config):
        made = f"{self.app.name}-{name}"
        new = NewTopic(made, partitions, config={"retention.ms": "-1", **config})
        self.admin.create_topics([new])[made].result(20)
        return made

    def send(self, topic, *values, key=None, headers=None, partition=None):
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "acks": "all", "partitioner": "murmur2_random"}
        )
        for value in values:
            given = {} if partition is None else {"partition": partition}
            producer.produce(topic, json.dumps(value), key=key or None, headers=headers, **given)
        assert producer.flush(60) == 0

    def read(self, topic, partition=0):
        """All committed records of a partition."""
        reader = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": uuid.uuid4().hex,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        reader.assign([TopicPartition(topic, partition, 0)])
        found = []
        while True:
            message = reader.poll(60)
            assert message is not None
            if message.error() is not None:
                reader.close()
                return found
            found.append(message)

    def command(self, *arguments):
        """Runs `headrace …` on this log, in this process."""
        assert command_line([*arguments, "--bootstrap", self.bootstrap]) == 0

    def hooks(self):
        """What `headrace hooks list` would show, by name."""
        return {each["hook"]: each for each in list_hooks(self.connection, app=self.app.name)}

    def wait_for(self, condition, timeout_s=90):
        """Until the condition holds of what is known of the hooks."""
        deadline = time.monotonic() + timeout_s
        while not condition(found := self.hooks()):
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
        return found

    def wait_for_counts(self, hook, timeout_s=90, **counts):
        return self.wait_for(lambda hooks: counts.items() <= hooks[hook]["counts"].items(), timeout_s)[hook]


@contextlib.contextmanager
def delivering(log, *, sources=(), environment=None, ended=None):
    """The hooks of the log's application at work in this process, on a loop in a thread.

    `ended` is set when they are not any more, whatever the reason.
    """
    messages, ready, loop, stop, failure = [], threading.Event(), asyncio.new_event_loop(), None, []

    async def main():
        nonlocal stop
        stop = asyncio.Event()
        deliverer = Deliverer(
            log.app.name,
            list(log.app.hooks.values()),
            log.connection,
            sources=sources,
            environment=environment,
            random=Random(7),
            on_message=messages.append,
        )
        await deliverer.run(stop, ready.set)

    def run():
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(main())
        except BaseException as error:
            failure.append(error)
        finally:
            ready.set()
            if ended is not None:
                ended.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(90)
    try:
        if failure:
            raise failure[0]
        yield messages
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
        thread.join(30)
    if failure:
        raise failure[0]


class DelivererLife:
    """`headrace deliver` in a process of its own."""

    def __init__(self, log, data: Path, *, sources=(), environment=None):
        self.data = data
        self.messages = data / "deliver.messages"
        self._environment = {**os.environ, **(environment or {})}
        data.mkdir(parents=True, exist_ok=True)
        write_description(data, described(log, sources))

    def start(self):
        command = [sys.executable, "-m", "headrace", "deliver", "--data", str(self.data), "--json"]
        with self.messages.open("ab") as messages:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=messages, env=self._environment
            )
        return self

    def wait_ready(self):
        line = self.process.stdout.readline()
        assert line, self.messages.read_text()
        return json.loads(line)

    def kill(self):
        self._end(signal.SIGKILL)

    def stop(self):
        return self._end(signal.SIGTERM)

    def _end(self, signum):
        if self.process.poll() is None:
            self.process.send_signal(signum)
        code = self.process.wait(30)
        self.process.stdout.close()
        return code

    def __enter__(self):
        self.start().wait_ready()
        return self

    def __exit__(self, *_):
        self.kill()


def described(log, sources=()):
    streams = tuple(
        StreamDescription(
            topic=name, schema="", decoder="json", event_time=None, lateness_us=0, late="drop",
            correct_for_us=0, group="", words="",
        )
        for name in sources
    )  # fmt: skip
    app = log.app
    return AppDescription(
        app=app.name, file=None, bootstrap=log.bootstrap, streams=streams, views=(),
        dead_topic=f"{app.name}.dead", late_topic=f"{app.name}.late",
        hooks=tuple(each.to_json() for each in app.hooks.values()), nodes=(), edges=(),
    )  # fmt: skip
