"""Event sourcing: commands a second, their latency, and what loading an entity with a long history costs.

The peer is the eventsourcing library on SQLite and on PostgreSQL, each durable: SQLite syncs its log at
every commit, PostgreSQL has `fsync` and `synchronous_commit` on, and Headrace's log syncs before it
answers. Clients are threads of one process (coroutines, for Headrace), each with accounts of its own; in
that process, as in `headrace serve`, threads take turns more often than Python's default. Systems take
turns, round by round, and the ratio of a round is between turns that follow each other.

    .venv/bin/python benchmarks/sourcing.py [--quick] [--rounds N] [--seconds S]
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import psutil
from environments import PeerUnavailable, python_with
from measure import Bar, Samples, print_table
from sourcing_app import Deposit, app

from headrace.client import Connection
from headrace.interpreter import answer_promptly
from headrace.sourcing import Command, CommandSender, EntityServer, History, new_command_id
from headrace.testing.broker import BrokerProcess
from headrace.testing.postgres import PostgresServer

HERE = Path(__file__).parent
PEER = ("sourcing", "eventsourcing==9.5.0", "psycopg[binary,pool]")
SERVE = ("--json", "--until-stdin-closes", "--bootstrap")
ACCOUNTS_EACH = 6
OURS, SQLITE, POSTGRES = "headrace", "SQLite", "PostgreSQL"


class Ours:
    """A broker, a serving process, and clients as coroutines of this process."""

    def __init__(self, bootstrap, broker_pid):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._server = subprocess.Popen(
            [sys.executable, "-m", "headrace", "serve", str(HERE / "sourcing_app.py"), *SERVE, bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self._server.stdout.readline()
        self._processes = [psutil.Process(pid) for pid in (broker_pid, self._server.pid, os.getpid())]
        app.entities.connect(bootstrap)

    def run(self, clients, seconds, pace_s=0.0):
        """Commands, refused ones, the time they took, and each one's latency."""
        return asyncio.run(self._run(clients, seconds, pace_s))

    async def _run(self, clients, seconds, pace_s):
        deadline, latencies, refused = time.perf_counter() + seconds, [], 0

        async def work(client):
            nonlocal refused
            number = 0
            due = time.perf_counter() + pace_s * client / clients
            while time.perf_counter() < deadline:
                if pace_s:
                    await asyncio.sleep(max(0.0, due - time.perf_counter()))
                    due += pace_s
                number += 1
                began = time.perf_counter()
                entity = app.entities.account(f"{client}-{number % ACCOUNTS_EACH}")
                answer = await entity.send(Deposit(1))
                latencies.append(time.perf_counter() - began)
                refused += not answer.accepted

        began, spent_s = time.perf_counter(), self._processor_s()
        await asyncio.gather(*(work(client) for client in range(clients)))
        return {
            "commands": len(latencies) - refused,
            "refused": refused,
            "seconds": time.perf_counter() - began,
            "processor_us": 1e6 * (self._processor_s() - spent_s) / len(latencies),
            "latencies": latencies,
        }

    def _processor_s(self):
        """Processor time of broker, server and clients together."""
        return sum(sum(each.cpu_times()[:2]) for each in self._processes)

    def close(self):
        app.entities.close()
        self._server.stdin.close()
        self._server.wait(60)


class Peer:
    """The eventsourcing library in a process of its own."""

    def __init__(self, python, **environment):
        self._process = subprocess.Popen(
            [python, str(HERE / "sourcing_peer.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
            text=True,
        )
        assert self._process.stdout.readline().strip() == "ready"

    def run(self, clients, seconds):
        self._process.stdin.write(json.dumps({"clients": clients, "seconds": seconds}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait(60)


def postgres_peer(python, server):
    uri = urlparse(server._server.get_uri())
    host = parse_qs(uri.query).get("host", [uri.hostname])[0]
    shown = server._server.psql("SHOW fsync; SHOW synchronous_commit;")
    assert shown.count("on") >= 2, shown
    return Peer(
        python,
        PERSISTENCE_MODULE="eventsourcing.postgres",
        POSTGRES_DBNAME=uri.path.lstrip("/") or "postgres",
        POSTGRES_HOST=host,
        POSTGRES_PORT=str(uri.port or 5432),
        POSTGRES_USER=uri.username or "postgres",
        POSTGRES_PASSWORD=uri.password or "",
        POSTGRES_POOL_SIZE="32",
        POSTGRES_MAX_OVERFLOW="40",
    )


def loading(bootstrap, tries):
    """Milliseconds to read the state of an entity with 10 and of one with 10,000 events.

    Both are read once before they count, and then in turns: what a process does when it reads its first
    entity is none of theirs.
    """
    connection, kind = Connection(bootstrap_servers=bootstrap), app.entity_types["account"]
    names = {events: f"load{events}" for events in (10, 10_000)}
    for events, name in names.items():
        deposit(connection, name, kind, events)
    taken = {events: [] for events in names}
    for _ in range(tries + 1):
        for events, name in names.items():
            began = time.perf_counter()
            assert History(connection, name, kind, "a").now().version == events
            taken[events].append(1000 * (time.perf_counter() - began))
    return {events: statistics.median(times[1:]) for events, times in taken.items()}


def deposit(connection, name, kind, events):
    """An application whose entity `a` has so many events; its server has stopped when this returns."""
    server = EntityServer(connection, name, {"account": kind})
    ready = threading.Event()
    thread = threading.Thread(target=server.run, args=(ready.set,))
    thread.start()
    ready.wait(60)
    sender = CommandSender(connection, name)
    futures = [
        sender.send("account", Command(entity="a", name="Deposit", data={"amount": 1}, id=new_command_id()))
        for _ in range(events)
    ]
    for each in futures:
        each.result(120)
    sender.close()
    server.stop()
    thread.join()


def main():
    answer_promptly()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--quick", action="store_true", help="one short round: shows that it works")
    given = parser.parse_args()
    rounds, seconds = (1, 1.0) if given.quick else (given.rounds, given.seconds)
    samples = Samples()
    try:
        python = python_with(*PEER)
        server = PostgresServer().__enter__()
    except PeerUnavailable as reason:
        print(reason, file=sys.stderr)
        return 2
    refused = dict.fromkeys((OURS, SQLITE, POSTGRES), 0)
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("HEADRACE_BENCH_DIR")) as folder,
        BrokerProcess(Path(folder) / "log") as broker,
    ):
        ours = Ours(broker.bootstrap, broker.pid)
        peers = {
            SQLITE: Peer(
                python,
                PERSISTENCE_MODULE="eventsourcing.sqlite",
                SQLITE_DBNAME=str(Path(folder) / "events.db"),
                SQLITE_LOCK_TIMEOUT="30",
            ),
            POSTGRES: postgres_peer(python, server),
        }
        systems = {OURS: ours, **peers}
        for each in systems.values():
            each.run(8, seconds / 2)  # warm
        for _ in range(rounds):
            for clients in (1, 64):
                for name, each in systems.items():
                    done = each.run(clients, seconds)
                    samples.add(name, f"{clients} clients", "commands/s", done["commands"] / done["seconds"])
                    refused[name] += done["refused"]
                    if name == OURS:
                        samples.add(name, f"{clients} clients", "processor µs", done["processor_us"])
        full = samples.median(OURS, "64 clients", "commands/s")
        found = [at_half_load(ours, full, seconds) for _ in range(rounds)]
        p50_ms, p99_ms = (statistics.median(each) for each in zip(*found, strict=True))
        for each in systems.values():
            each.close()
        loaded = loading(broker.bootstrap, 3 if given.quick else 15)
    server.__exit__()
    report(samples, refused, p50_ms, p99_ms, loaded)
    return 0


def at_half_load(ours, full, seconds):
    """p50 and p99 of a command in ms, while half as many come as there could."""
    latencies = sorted(ours.run(64, seconds, pace_s=64 / (full / 2))["latencies"])
    return 1000 * statistics.median(latencies), 1000 * latencies[int(len(latencies) * 0.99)]


def report(samples, refused, p50_ms, p99_ms, loaded):
    rows = []
    for clients in ("1 clients", "64 clients"):
        figures = [f"{samples.median(each, clients, 'commands/s'):,.0f}" for each in (OURS, SQLITE, POSTGRES)]
        against = samples.median_ratio(OURS, POSTGRES, clients, "commands/s")
        if clients == "64 clients":
            against = min(against, samples.median_ratio(OURS, SQLITE, clients, "commands/s"))
        bar = Bar(factor=1 if clients == "1 clients" else 5, at_least=True)
        rows.append((f"commands/s, {clients}", *figures, f"{against:.2f}", bar.verdict(against)))
    print_table([("", OURS, SQLITE, POSTGRES, "ratio", "bar"), *rows])
    spent = (
        f"{clients} {samples.median(OURS, clients, 'processor µs'):,.0f} µs"
        for clients in ("1 clients", "64 clients")
    )
    print(f"processor time of a command, broker, server and clients together: {', '.join(spent)}")
    print(f"refused: {', '.join(f'{name} {count}' for name, count in refused.items())}")
    verdict = "pass" if p99_ms < 20 else "MISS"
    print(f"a command at half load: p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms (< 20 ms {verdict})")
    ratio = loaded[10_000] / loaded[10]
    bar = Bar(factor=2, at_least=False)
    few, many = loaded[10], loaded[10_000]
    print(
        f"loading an entity with 10 events: {few:.1f} ms, with 10,000: {many:.1f} ms; "
        f"{ratio:.2f} {bar.verdict(ratio)}"
    )


if __name__ == "__main__":
    sys.exit(main())
