"""What a broker's endpoint for metrics and health says, asked as a Prometheus server asks."""

import http.client

from prometheus_text import parse


def ask(port, path, method="GET"):
    """Status, content type and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def scrape(broker):
    """Every family of metrics, by name."""
    status, kind, text = ask(broker.metrics_port, "/metrics")
    assert status == 200
    assert kind.startswith("text/plain; version=0.0.4")
    return parse(text)


def value(families, name, **labels):
    """A series' number; 0 if there is none."""
    return families[name]["samples"].get((name, tuple(sorted(labels.items()))), 0)


def count(families, name, **labels):
    """How often a histogram observed something."""
    return families[name]["samples"].get((f"{name}_count", tuple(sorted(labels.items()))), 0)
