"""The line for Kubernetes in the guide, given to Spark's own `spark-submit`: what does it ask for?

There is no cluster. The requests of Spark are recorded: they contain the pod that it would start.
"""

import json
import os
import re
import shlex
import subprocess
import threading
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyspark
import pytest

from headrace.java import find_java

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "clusters.md"
SPARK = Path(pyspark.__file__).parent
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "JAVA_HOME": str(find_java().home),
    "SPARK_HOME": str(SPARK),
}


def submit_line(heading):
    """The arguments of the `spark-submit` below a heading."""
    section = GUIDE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    (block,) = (each for each in re.findall(r"```sh\n(.*?)```", section, re.S) if "spark-submit" in each)
    line = next(each for each in block.replace("\\\n", " ").splitlines() if "spark-submit" in each)
    return shlex.split(line)


@contextmanager
def recorded():
    """Answers like an API that takes everything; the address, and a list of what was posted."""
    posted, arrived = [], threading.Event()

    class Recorder(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            posted.append((self.path, body))
            body["metadata"] = {**body["metadata"], "uid": "1", "resourceVersion": "1"}
            self._answer(201, body)
            if self.path.split("?")[0].endswith("/pods"):
                arrived.set()

        def do_GET(self):
            self._answer(404, {"kind": "Status", "status": "Failure", "code": 404})

        def _answer(self, code, body):
            raw = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with closing(server.socket):
        yield f"k8s://http://127.0.0.1:{server.server_port}", posted, arrived
        server.shutdown()


@pytest.mark.timeout(300)
def test_the_line_for_kubernetes_asks_for_a_pod_with_the_image_and_the_settings_of_the_application(tmp_path):
    _, *arguments = submit_line("Kubernetes")
    with recorded() as (address, posted, arrived):
        arguments[arguments.index("--master") + 1] = address
        with (tmp_path / "said").open("wb") as said:
            submit = subprocess.Popen(
                [str(SPARK / "bin" / "spark-submit"), *arguments],
                env=ENVIRONMENT,
                cwd=tmp_path,
                stdout=said,
                stderr=said,
            )
        try:
            assert arrived.wait(240), (tmp_path / "said").read_text()
        finally:
            submit.kill()
            submit.wait()
    pod = next(body for path, body in posted if path.split("?")[0].endswith("/pods"))
    (container,) = pod["spec"]["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    given = {name: value for name, value in environment.items() if name.startswith("HEADRACE_")}
    assert given == {"HEADRACE_BOOTSTRAP": "kafka-1:9092", "HEADRACE_DATA": "s3://company/shop"}
    assert pod["spec"]["serviceAccountName"] == "spark"
    assert container["image"] == "registry.example.com/shop:1"
    assert container["args"][-1] == "local:///app/shop.py"
