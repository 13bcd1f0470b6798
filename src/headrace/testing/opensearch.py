"""A real OpenSearch on a loopback port: one node, from the jars that its project publishes for Maven."""

import pwd
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Self

from headrace.java import find_java
from headrace.testing.maven import PeerUnavailable, fetch_jars
from headrace.testing.mysql_process import free_port, unprivileged_user

__all__ = ["OpenSearchProcess"]

VERSION = "2.19.1"
_SERVER = (
    ("org.opensearch", "opensearch", VERSION),
    ("org.opensearch", "opensearch-plugin-classloader", VERSION),
    ("org.apache.logging.log4j", "log4j-core", "2.21.0"),
)
_TRANSPORT = (("org.opensearch.plugin", "transport-netty4-client", VERSION),)
_MODULE = f"""description=Transport by Netty
version={VERSION}
name=transport-netty4
classname=org.opensearch.transport.Netty4Plugin
java.version=11
opensearch.version={VERSION}
"""
_POLICY = "grant { permission java.security.AllPermission; };\n"
_LOGGING = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1.} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""
_START_TIMEOUT_S = 180


class OpenSearchProcess:
    """One node, its data in a temporary folder, its user unprivileged; use as a context manager.

    Raises PeerUnavailable where its jars cannot be had, or no Java.
    """

    def __init__(self) -> None:
        self._java = find_java().runtime / "bin" / "java"
        self._jars = fetch_jars("OpenSearch", f"opensearch-{VERSION}", _SERVER)
        self._module = fetch_jars("OpenSearch", f"opensearch-transport-{VERSION}", _TRANSPORT)
        self._user = unprivileged_user()
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self.port, self._transport_port = free_port(), free_port()

    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-os-"))
        self._lay_out()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Starts it and waits until it answers."""
        home = self._folder
        command = [str(self._java), "-Xms256m", "-Xmx512m", f"-Djava.io.tmpdir={home / 'tmp'}"]
        command += [f"-Dopensearch.path.home={home}", f"-Dopensearch.path.conf={home / 'config'}"]
        command += ["-Djava.security.manager=allow", "-cp", str(home / "lib" / "*")]
        command += ["org.opensearch.bootstrap.OpenSearch"]
        with (home / "log").open("ab") as log:
            started: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - our own command line
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=home, **self._as_user()
            )
        self._process = started
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            if started.poll() is not None or time.monotonic() > deadline:
                raise PeerUnavailable(f"OpenSearch does not start: {(home / 'log').read_text()[-2000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Kills it, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _lay_out(self) -> None:
        """The folders that a node expects; jars are copied, for its user may not read the cache."""
        module = self._folder / "modules" / "transport-netty4"
        shutil.copytree(self._jars, self._folder / "lib")
        shutil.copytree(self._module, module)
        (module / "plugin-descriptor.properties").write_text(_MODULE)
        (module / "plugin-security.policy").write_text(_POLICY)
        for name in ("config", "data", "logs", "plugins", "tmp"):
            (self._folder / name).mkdir()
        settings = f"discovery.type: single-node\nnetwork.host: 127.0.0.1\nhttp.port: {self.port}\n"
        settings += f"transport.port: {self._transport_port}\n"
        settings += "cluster.routing.allocation.disk.threshold_enabled: false\n"
        (self._folder / "config" / "opensearch.yml").write_text(settings)
        (self._folder / "config" / "log4j2.properties").write_text(_LOGGING)
        if self._user:
            for each in (self._folder, *self._folder.rglob("*")):
                shutil.chown(each, self._user)

    def _answers(self) -> bool:
        try:
            asked = f"{self.url()}/_cluster/health?wait_for_status=yellow&timeout=5s"
            with urllib.request.urlopen(asked, timeout=10) as answer:  # noqa: S310 - our own address
                return bool(answer.status == 200)
        except OSError:
            return False

    def _as_user(self) -> dict[str, Any]:
        if not self._user:
            return {}
        known = pwd.getpwnam(self._user)
        return {"user": known.pw_uid, "group": known.pw_gid, "extra_groups": []}
