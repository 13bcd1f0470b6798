"""The deliverer as `headrace run` keeps it: ends with its parent, and comes back when it dies."""

import os
import signal

from hook_lives import LOCAL, described

from headrace.app.processes.sidecars import DelivererSidecar
from headrace.app.status.description import write_description


def test_a_deliverer_that_dies_is_started_again(log, receiver, tmp_path):
    topic = log.topic()
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    write_description(tmp_path, described(log))
    deliverer = DelivererSidecar(tmp_path, log.connection)
    try:
        assert deliverer.check() is None
        log.send(topic, 1)
        receiver.wait_for_count(1)
        killed = deliverer.pid
        os.kill(killed, signal.SIGKILL)
        os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)
        assert "died and was restarted" in deliverer.check()
        assert deliverer.pid != killed
        log.send(topic, 2)
        receiver.wait_for(lambda requests: requests[-1].data == 2)
    finally:
        deliverer.end()
    assert not deliverer.child.is_alive
