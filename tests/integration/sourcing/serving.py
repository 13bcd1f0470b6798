"""Servers of entities for tests: in a thread, or as processes that can be killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from headrace.client import Connection
from headrace.sourcing import Entities, EntityServer
from headrace.stopping import STOPPED_BY_INPUT

ACCOUNTS = Path(__file__).with_name("bank.py")


def entities_at(bootstrap, kinds, app="bank", **options):
    connect = Connection(bootstrap_servers=bootstrap)
    return Entities(app, kinds, lambda: connect, lambda kind: None, **options)


@contextlib.contextmanager
def serving(bootstrap, kinds, app="bank", **options):
    """A server in a thread, once it owns partitions."""
    server = EntityServer(Connection(bootstrap_servers=bootstrap), app, kinds, **options)
    ready, failures = threading.Event(), []

    def run():
        try:
            server.run(ready.set)
        except BaseException as error:
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(60)
        if failures:
            raise failures[0]
        yield server
    finally:
        server.stop()
        thread.join()
    assert not failures, failures


class ServerProcess:
    """`headrace serve` on a file, started as `headrace run` does; `kill` is SIGKILL."""

    def __init__(self, bootstrap, file=ACCOUNTS, *arguments, environment=None, messages=subprocess.DEVNULL):
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "headrace",
                "serve",
                str(file),
                "-b",
                bootstrap,
                "--json",
                "--until-stdin-closes",
                *arguments,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            env={
                **os.environ,
                STOPPED_BY_INPUT: "1",
                "PYTHONPATH": os.pathsep.join(sys.path),
                **(environment or {}),
            },
        )

    def wait_ready(self):
        return json.loads(self._process.stdout.readline())

    def read_message(self):
        """The next line that it says, if its messages are piped."""
        return self._process.stderr.readline().decode()

    def kill(self):
        self._process.kill()
        self._end()

    def pause(self):
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        self._process.send_signal(signal.SIGCONT)

    def stop(self):
        """Ends it in order; the exit code."""
        self._process.stdin.close()
        return self._end()

    def _end(self):
        code = self._process.wait(60)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        return code
