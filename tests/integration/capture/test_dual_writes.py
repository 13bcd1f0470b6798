"""examples/10_dual_writes: a cache written beside the database drifts, one that follows the log does not."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from tests.integration.capture.conftest import running, wait_until

from headrace.capture.sqlite import SqliteSource
from headrace.cli.main import run as main
from headrace.testing.broker import running_broker

EXAMPLE = Path(__file__).parents[3] / "examples" / "10_dual_writes"


def load(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_dual_writes_drift_and_a_follower_does_not(bootstrap, tmp_path):
    writes, follower = load("dual_writes"), load("follow")
    shop, cache, followed = (str(tmp_path / each) for each in ("shop.db", "cache.db", "followed.db"))
    for path in (shop, cache, followed):
        writes.create(path)
    writes.CHANGES = 40
    with running(bootstrap, "shop", lambda: SqliteSource(Path(shop), ["prices"], name="shop")) as run:
        wait_until(lambda: run.status.state == "streaming")
        writes.race(shop, cache)
        true = writes.prices(shop)
        assert {0, 1} <= {item for item, price in true.items() if writes.prices(cache).get(item) != price}
        for _ in range(2):  # a second follower goes on where the first stopped
            follower.follow(followed, bootstrap, is_enough=lambda: writes.prices(followed) == true)
    assert writes.prices(followed) == true


def test_a_cache_in_redis_that_follows_the_database_does_not_drift(redis, tmp_path):
    writes = load("dual_writes")
    shop, unused = str(tmp_path / "shop.db"), str(tmp_path / "unused.db")
    writes.create(shop)
    writes.CHANGES = 40
    command = [sys.executable, "-m", "headrace", "follow", "run", "--file", str(EXAMPLE / "cache.py")]
    environment = {**os.environ, "REDIS_URL": redis.url(900)}
    with running_broker(tmp_path / "log") as broker:  # of its own: another log knows another database as shop
        command += ["--json", "--until-stdin-closes", "--bootstrap", f"127.0.0.1:{broker.port}"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=tmp_path, env=environment) as following:
            writes.race(shop, unused, caching=False)
            client, true = redis.connect(900), writes.prices(shop)

            def cached():
                found = {item: client.call("GET", f"price:{item}") for item in true}
                return {
                    item: json.loads(value)["price"] for item, value in found.items() if value is not None
                }

            wait_until(lambda: cached() == true)
            following.stdin.close()
            assert following.wait(60) == 0
        assert main(["follow", "verify", "cache", "--bootstrap", f"127.0.0.1:{broker.port}"]) == 0
