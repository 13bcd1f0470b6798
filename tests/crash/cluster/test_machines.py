"""The demo's application on machines that share a network and a bucket, while some of it is killed.

Three brokers of Kafka, an S3, PostgreSQL and Spark's master are on the network; two workers and two drivers
are machines of their own. Who is told to die is drawn; the seed is printed.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from pyarrow import fs
from tests.crash.cluster import recomputation
from tests.crash.cluster.drivers import HEADRACE, TIMEOUT_S, Driver, Traffic, committed, wait_for, wait_until
from tests.integration.app.standalone import StandaloneCluster

import headrace as headrace_package
from headrace.demo.customers import create_customers
from headrace.demo.start import APPLICATION
from headrace.testing.kafka import KafkaCluster, fetch_kafka
from headrace.testing.machines import Machines
from headrace.testing.maven import PeerUnavailable
from headrace.testing.postgres_process import PASSWORD, USER, PostgresProcess
from headrace.testing.s3 import S3_ENVIRONMENT, s3_process

MINUTES = float(os.environ.get("HEADRACE_CLUSTER_MINUTES", "0"))  # so long, at a steady rate

pytestmark = [
    pytest.mark.machines,
    pytest.mark.timeout(6000 + 60 * MINUTES),  # every wait has a bound of its own, and says what for
    pytest.mark.xdist_group("machines"),
]

SOURCES = Path(headrace_package.__file__).parents[1]
EXECUTOR = "CoarseGrainedExecutorBackend"
SMALL = ("spark.executor.memory=512m", "spark.driver.memory=640m", "spark.cores.max=2")
CUSTOMERS = """customers = app.table(
    "shop.customers", key="customer_id", schema="customer_id string, tier string, city string"
)
"""
FENCED, QUERIES = 4, 8
MOST_OBJECTS = 100  # a snapshot after some 33 batches of a small state, and what runs before have left
EVERY_S = 120 if MINUTES else 0  # from one kill to the next
HOOKS = {
    "SHOP_WEBHOOK_URL": "http://127.0.0.1:9/nobody",
    "SHOP_WEBHOOK_SECRET": "whsec_bm90IGEgc2VjcmV0IGF0IGFsbA==",
    "SHOP_SMTP": "smtp://127.0.0.1:9",
}


class Site:
    """All of it: machines, servers, workers; what an application on it is started with."""

    def __init__(self, folder, stack):
        self.folder = folder
        fetch_kafka()  # machines reach no registry
        self.machines = stack.enter_context(Machines(folder, installed=[Path(sys.prefix), SOURCES]))
        host = self.machines.address
        self.kafka = stack.enter_context(KafkaCluster(host=host))
        s3 = stack.enter_context(s3_process(host))
        files = {
            "pg_hba.conf": f"host all all 127.0.0.1/32 trust\nhost all all {host}/24 scram-sha-256".encode()
        }
        listening = {"listen_addresses": f"'127.0.0.1,{host}'"}
        self.postgres = stack.enter_context(PostgresProcess(settings=listening, files=files))
        self.store = f"postgresql://{USER}@{host}:{self.postgres.port}/postgres"
        self.env = s3 | {"PGPASSWORD": PASSWORD, "PYTHONPATH": str(SOURCES)}
        self.spark = stack.enter_context(StandaloneCluster(folder, workers=0, host=host))
        self.workers, self._count = {}, 0
        for name in ("w1", "w2"):
            self.machines.add(name)
            self.start_worker(name)
        for name in ("d1", "d2"):
            self.machines.add(name)

    def start_worker(self, name):
        """On its machine, with what the machine knows: nothing of that comes from a driver."""
        self._count += 1
        self.workers[name] = self.spark.add_worker(
            f"{name}-{self._count}", cores=2, memory="1100m", machine=self.machines[name], env=self.env
        )

    def file(self, machine):
        """The shop with its views in PostgreSQL, and its customers in a topic, on a machine."""
        text = APPLICATION.read_text()
        kept, stores = re.subn(r'App\("shop"\)', f'App("shop", store="{self.store}")', text)
        found, tables = re.subn(r"customers = app\.table\(.*?\n(?=posts = )", CUSTOMERS, kept, flags=re.S)
        assert (stores, tables) == (1, 1)
        self.machines[machine].run(["sh", "-c", "cat > shop.py"], text=found)
        return "shop.py"

    def options(self, machine, data="s3://bucket/shop"):
        here = f"spark.driver.host={self.machines[machine].address}"  # what others call it, nobody knows
        confs = (part for each in (*SMALL, here) for part in ("--conf", each))
        return ("--data", data, "--master", self.spark.url, *confs)

    def environment(self):
        return {**os.environ, **self.env, **HOOKS}

    def run(self, machine, command, *options):
        """A command of `headrace` on a machine, to its end."""
        command = [HEADRACE, command, self.file(machine), *options]
        with (self.folder / "command").open("w+b") as out:
            process = self.machines[machine].popen(command, self.environment(), out)
            code = process.wait(TIMEOUT_S)
            return code, (self.folder / "command").read_text()

    def kept(self):
        """How much is at the URL; in no folder, of a bucket or a query, are more objects than at first."""
        key, secret, region = (self.env[each] for each in S3_ENVIRONMENT[1:])
        endpoint = self.env[S3_ENVIRONMENT[0]]
        system = fs.S3FileSystem(access_key=key, secret_key=secret, region=region, endpoint_override=endpoint)
        below = fs.FileSelector("bucket/shop", recursive=True, allow_not_found=True)
        found = [each for each in system.get_file_info(below) if each.is_file]
        folders = Counter(each.path.rpartition("/")[0] for each in found)
        assert max(folders.values(), default=0) <= MOST_OBJECTS, folders.most_common(5)
        most = max(folders.values(), default=0)
        size = sum(each.size for each in found)
        return f"{len(found)} objects, {size:,} bytes at the URL, at most {most} in a folder"

    def psql(self, query):
        with psycopg.connect(f"host=127.0.0.1 port={self.postgres.port} user=postgres") as connection:
            return connection.execute(query).fetchall()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("moto", reason="moto is not installed; `make setup` does so")
    with ExitStack() as stack:
        try:
            found = Site(tmp_path_factory.mktemp("site"), stack)
        except PeerUnavailable as reason:
            if os.environ.get("HEADRACE_REQUIRE_MACHINES") == "1":
                pytest.fail(f"{reason}; unset HEADRACE_REQUIRE_MACHINES to skip this")
            pytest.skip(str(reason))
        yield found


def test_what_a_driver_and_its_executors_do_not_share_is_refused_in_one_line(site):
    kafka = ("--bootstrap", site.kafka.bootstrap)
    code, said = site.run("d1", "run", *kafka, *site.options("d1", str(site.folder / "data")))
    assert code == 2 and re.search(r"executor on w[12] does not share .* mount it at the same path", said), (
        said
    )
    code, said = site.run("d1", "run", *kafka, *site.options("d1", "data"))
    assert code == 2 and "is relative" in said, said
    code, said = site.run("d1", "run", *site.options("d1", str(site.folder / "data")))
    assert code == 2 and "cannot reach the embedded log" in said, said
    own = site.machines["d1"].popen(
        [HEADRACE, "broker", "--listen", "127.0.0.1:9092", "--data", "broker"], site.environment()
    )
    try:
        code, said = site.run("d1", "run", "--bootstrap", "127.0.0.1:9092", *site.options("d1"))
        assert code == 2 and re.search(r"executor on w[12] cannot reach the broker 127.0.0.1:9092", said), (
            said
        )
    finally:
        own.kill()
        own.wait()


class Run:
    """The drivers of one application, of which the last that was started is meant to be the owner."""

    def __init__(self, site, stack):
        self.site, self.stack = site, stack
        self.drivers, self.machine = [], "d2"

    @property
    def driver(self):
        return self.drivers[-1]

    def start(self, *options):
        """One more driver, on the other machine."""
        self.machine = "d1" if self.machine == "d2" else "d2"
        driver = Driver(
            self.site.folder / f"driver-{len(list(self.site.folder.glob('driver-*')))}",
            self.site.file(self.machine),
            self.site.kafka.bootstrap,
            *self.site.options(self.machine),
            *("--buckets", "2"),
            *options,
            machine=self.site.machines[self.machine],
            env={**self.site.env, **HOOKS},
        )
        self.stack.callback(driver.kill)
        self.drivers.append(driver)
        return driver

    def go_on(self):
        """Until each of its queries has read something more."""
        before, queries = self.driver.progress(), set()
        for driver in self.drivers:
            queries |= driver.progress().keys()

        def missing():
            now = self.driver.progress()
            behind = [each for each in sorted(queries) if now[each] == before[each]]
            return f"another batch of {', '.join(behind)}" if behind else ""

        wait_for(missing, self.driver)

    def executors(self):
        """By worker, those that have any; they are waited for."""
        found = {}

        def look():
            pids = {each: self.site.machines[each].pids(EXECUTOR) for each in self.site.workers}
            found.update((name, each) for name, each in pids.items() if each)
            return found

        wait_until(look, self.driver, "an executor")
        return found


def kill_an_executor(run, chance):
    os.kill(chance.choice(chance.choice(list(run.executors().values()))), signal.SIGKILL)


def kill_a_worker(run, chance):
    """With its executors, as a machine that loses its power does; it comes back a while later."""
    name = chance.choice(list(run.executors()))
    for pid in run.site.machines[name].pids("spark"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    run.go_on()
    run.site.start_worker(name)


def cut_off_a_worker(run, chance):
    """Its executors go on, and reach nobody; whatever they still do must not count."""
    name = chance.choice(list(run.executors()))
    run.site.machines[name].cut()
    try:
        run.go_on()
    finally:
        run.site.machines[name].heal()
    if run.site.workers[name].poll() is not None:  # Spark's worker gives up when its master is away
        run.site.start_worker(name)


def kill_a_broker(run, chance):
    node = chance.choice(run.site.kafka.nodes)
    run.site.kafka.kill(node)
    run.go_on()
    run.site.kafka.restart(node)
    run.site.kafka.wait_in_sync()


def move_the_driver(run, chance):
    """Kills it, and starts another on the other machine."""
    run.driver.kill()
    run.start().wait_for_records(1)


def replace_a_driver_that_stands_still(run, chance):
    """Another takes over while it is suspended; when it wakes up, it sees that, and ends."""
    before = run.driver
    before.signal(signal.SIGSTOP)
    try:
        run.start().wait_for_records(1)
    finally:
        before.signal(signal.SIGCONT)
    assert before.wait("a driver that woke up to find itself replaced") == FENCED, before.said


def replace_a_driver_that_is_cut_off(run, chance):
    """Another takes over while it reaches nobody and believes that it is the owner."""
    before, machine = run.driver, run.site.machines[run.machine]
    machine.cut()
    try:
        run.start().wait_for_records(1)
    finally:
        machine.heal()
    assert before.wait("a driver that is back and was replaced") == FENCED, before.said


KILLS = {
    each.__name__: each
    for each in (
        kill_an_executor,
        move_the_driver,
        kill_a_worker,
        cut_off_a_worker,
        kill_a_broker,
        replace_a_driver_that_stands_still,
        replace_a_driver_that_is_cut_off,
    )
}


def chosen():
    """The kinds of kills that `HEADRACE_CLUSTER_KILLS` names, or all."""
    names = os.environ.get("HEADRACE_CLUSTER_KILLS", "")
    return [KILLS[each] for each in names.split(",")] if names else list(KILLS.values())


def drawn(kills, chance):
    """All of them in some order; then any of them, without an end."""
    yield from chance.sample(kills, len(kills))
    while True:
        yield chance.choice(kills)


@pytest.mark.slow
def test_the_shop_survives_kills_and_moves_between_machines(site):
    seed = int(os.environ.get("HEADRACE_CLUSTER_SEED", random.randrange(10**6)))
    print("seed", seed)
    kills, chance, began = chosen(), random.Random(seed), time.monotonic()
    with ExitStack() as stack:
        run = Run(site, stack)
        moves = stack.enter_context(
            Traffic(site.kafka.bootstrap, "shop.customers", customers(seed), per_second=20)
        )
        traffic = stack.enter_context(traffic_of_the_shop(site, seed))
        run.start()
        wait_until(lambda: len(run.driver.progress()) == QUERIES, run.driver, "a batch of every query")
        for number, kill in enumerate(drawn(kills, chance)):
            if number >= len(kills) and time.monotonic() - began > 60 * MINUTES:
                break
            print(f"{time.monotonic() - began:.0f} s: {kill.__name__}; {site.kept()}", flush=True)
            kill(run, chance)
            run.go_on()
            time.sleep(max(0.0, EVERY_S * (number + 1) - (time.monotonic() - began)))
        moves.close()
        traffic.stdin.close()
        assert traffic.wait(TIMEOUT_S) == 0
        run.driver.signal(signal.SIGINT)
        assert run.driver.wait() == 0, run.driver.said
        assert run.start("--until-caught-up").wait() == 0, run.driver.said
        failures = [each for driver in run.drivers for each in driver.failures()]
    print(f"{time.monotonic() - began:.0f} s: {len(run.drivers)} drivers; restarted queries: {failures}")
    code, said = site.run("d1", "verify", "--bootstrap", site.kafka.bootstrap, "--data", "s3://bucket/shop")
    assert code == 0 and said.count(": equal") == 9, said
    require_recomputed(site)
    print(f"{time.monotonic() - began:.0f} s: verified")


def customers(seed):
    """Customers that sign up, move to another tier, and leave, by their keys."""
    chance = random.Random(seed)
    while True:
        key = {"customer_id": f"customer-{chance.randrange(300)}"}
        row = {"tier": chance.choice(("basic", "silver", "gold")), "city": "Ghent"}
        value = None if chance.random() < 0.1 else json.dumps(key | row).encode()
        yield json.dumps(key).encode(), value


def traffic_of_the_shop(site, seed):
    unused = f"sqlite:///{site.folder / 'unused.db'}"  # these customers are not captured
    create_customers(unused, datetime.now(UTC))
    command = [sys.executable, "-m", "headrace.demo.produce", "--bootstrap", site.kafka.bootstrap]
    command += ["--rate", "50", "--seed", str(seed), "--history-seconds", "30", "--customers", unused]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=site.environment())


def require_recomputed(site):
    """Topics and views are what plain Python makes of the topics that other clients wrote."""
    log = recomputation.Log({each: committed(site.kafka.bootstrap, each) for each in recomputation.TOPICS})
    assert log.large_orders() == recomputation.large_orders(log)
    letters = log.dead_letters()
    assert {at for _, at in letters} == log.unreadable and letters == recomputation.dead_letters(log)
    revenue = site.psql("SELECT region, window_start, orders, revenue FROM revenue_per_minute")
    assert recomputation.as_cents(revenue) == recomputation.revenue_per_minute(log)
    tiers = dict(site.psql("SELECT tier, customers FROM customers_per_tier"))
    assert tiers == recomputation.customers_per_tier(log)
    timelines = site.psql("SELECT follower, post_id, author, text FROM timelines")
    assert len(timelines) == len(set(timelines)) and set(timelines) == recomputation.timelines(log)
    orders = {
        name: tuple(row) for name, *row in site.psql("SELECT order_id, amount, tier FROM orders_of_customers")
    }
    expected, shown = recomputation.orders_of_customers(log)
    assert orders == {name: expected[name] for name in orders.keys() | shown}
    print(f"{len(log)} records, {len(letters)} dead letters, {len(log.large_orders().keys())} large orders,")
    print(f"{len(revenue)} windows, {len(timelines)} rows of timelines, {len(orders)} orders")
