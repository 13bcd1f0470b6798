"""A producer of numbered batches goes on when the only broker was killed and is back."""

import threading

from headrace.client import Connection
from headrace.client.topics import TopicSettings
from headrace.client.write import OutputRecord, RecordSink
from headrace.testing.broker import BrokerProcess


def test_a_batch_is_written_after_the_only_broker_died_and_came_back(tmp_path):
    """The client library may wait for ever here (see `client/connect/clients.py`), so a thread watches."""
    written = []
    with BrokerProcess(tmp_path) as broker:
        log = Connection(bootstrap_servers=broker.bootstrap)
        sink = RecordSink(log, "restart", "q", topics={"t": TopicSettings(partitions=1)})

        def write(number):
            written.append(sink.write(number, [OutputRecord("t", b"k", b"%d" % number)]))

        for number in range(3):
            writer = threading.Thread(target=write, args=(number,), daemon=True)
            writer.start()
            writer.join(120)
            assert not writer.is_alive(), f"batch {number} waits for ever"
            if number < 2:
                broker.kill()
                broker.start()
        assert written == [True] * 3
        sink.close()
