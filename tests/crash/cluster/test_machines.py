"""The demo's application on machines that share a network and a bucket: what cannot work is refused.

Three brokers of Kafka, an S3, PostgreSQL and Spark's master are on the network; two workers and two drivers
are machines of their own.
"""

import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.crash.cluster.drivers import HEADRACE, TIMEOUT_S
from tests.integration.app.standalone import StandaloneCluster

import headrace as headrace_package
from headrace.demo.start import APPLICATION
from headrace.testing.kafka import KafkaCluster
from headrace.testing.machines import Machines
from headrace.testing.maven import PeerUnavailable
from headrace.testing.postgres_process import PASSWORD, PostgresProcess
from headrace.testing.s3 import s3_process

pytestmark = [pytest.mark.machines, pytest.mark.timeout(3000), pytest.mark.xdist_group("machines")]

SOURCES = Path(headrace_package.__file__).parents[1]
SMALL = ("spark.executor.memory=512m", "spark.driver.memory=640m", "spark.cores.max=2")
CUSTOMERS = """customers = app.table(
    "shop.customers", key="customer_id", schema="customer_id string, tier string, city string"
)
"""
HOOKS = {
    "SHOP_WEBHOOK_URL": "http://127.0.0.1:9/nobody",
    "SHOP_WEBHOOK_SECRET": "whsec_bm90IGEgc2VjcmV0IGF0IGFsbA==",
    "SHOP_SMTP": "smtp://127.0.0.1:9",
}


class Site:
    """All of it: machines, servers, workers; what an application on it is started with."""

    def __init__(self, folder, stack):
        self.folder = folder
        self.machines = stack.enter_context(Machines(folder, installed=[Path(sys.prefix), SOURCES]))
        host = self.machines.address
        self.kafka = stack.enter_context(KafkaCluster(host=host))
        s3 = stack.enter_context(s3_process(host))
        files = {
            "pg_hba.conf": f"host all all 127.0.0.1/32 trust\nhost all all {host}/24 scram-sha-256".encode()
        }
        listening = {"listen_addresses": f"'127.0.0.1,{host}'"}
        self.postgres = stack.enter_context(PostgresProcess(settings=listening, files=files))
        self.store = self.postgres.url().replace("127.0.0.1", host)
        self.env = s3 | {"HEADRACE_TEST_PGPASSWORD": PASSWORD, "PYTHONPATH": str(SOURCES)}
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
