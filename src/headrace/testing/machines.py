"""Machines for tests: on this computer, but with nothing in common except a network and what is installed.

    with Machines(folder, installed=[prefix, sources]) as machines:
        server = Popen(…)                      # on the network's own address, `machines.address`
        worker = machines.add("worker-1")
        worker.popen(["program"])

A machine is a Linux network namespace with an address of its own on a bridge, its own host name, and its
own, empty folders where others have files (`/tmp`, `/dev/shm`, `folder`). The bridge is in a namespace
as well, which the thread that enters `Machines` is moved into: what it starts from then on is on that
network, and can reach nothing else. All of it disappears with its processes, and these end with the
process that made them, however that ends.

It needs root and iproute2; where they are missing, `PeerUnavailable` says so.
"""

import ctypes
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Self

from headrace.testing.maven import PeerUnavailable

__all__ = ["Machine", "Machines"]

_NETWORK = "10.77.0"
_PRIVATE = ("/tmp", "/dev/shm")  # noqa: S108 - hidden behind folders of each machine's own
_CLONE_NEWNET = 0x40000000
_TIMEOUT_S = 30

# Says so when it is ready; ends whatever runs in its network when its input closes.
_KEEPER = """
set -e
eval "$SETUP"
echo ready
cat > /dev/null
own=$(readlink /proc/self/ns/net)
for each in /proc/[0-9]*; do
  pid=${each#/proc/}
  [ "$pid" != $$ ] && [ "$(readlink "$each/ns/net" 2> /dev/null)" = "$own" ] && kill -KILL "$pid" || true
done 2> /dev/null
"""
_HUB = f"ip link set lo up; ip link add bridge type bridge; ip addr add {_NETWORK}.1/24 dev bridge; \
ip link set bridge up"
# What is installed stays readable, though folders above it are replaced by empty ones.
_MACHINE = """
hostname "$NAME"
ip link set lo up
number=3
for each in $INSTALLED; do eval "exec $number< \\"$each\\""; number=$((number + 1)); done
for each in $PRIVATE; do mkdir -p "$each"; mount -t tmpfs -o size=2g,mode=1777 tmpfs "$each"; done
number=3
for each in $INSTALLED; do
  mkdir -p "$each"
  mount --no-canonicalize --bind "/proc/self/fd/$number" "$each"
  mount -o remount,bind,ro "$each"
  number=$((number + 1))
done
mkdir -p "$FOLDER"
printf '127.0.0.1 localhost\\n%s %s\\n' "$ADDRESS" "$NAME" > /tmp/hosts
mount --bind /tmp/hosts /etc/hosts
"""


class Machines:
    """A network, entered and left by the thread that uses it as a context manager.

    `folder` is what each machine has an empty one of; `installed` are folders that all of them may read.
    """

    def __init__(self, folder: Path, *, installed: Iterable[Path] = ()) -> None:
        self.folder = folder
        self.address = f"{_NETWORK}.1"
        self._installed = [str(each) for each in installed if _is_hidden(each, folder)]
        self._cleanup = ExitStack()
        self._machines: dict[str, Machine] = {}

    def add(self, name: str) -> "Machine":
        """One more machine; its name is its host name."""
        number = len(self._machines) + 1
        address = f"{_NETWORK}.{10 + number}"
        private = [each for each in (*_PRIVATE, str(self.folder)) if not _is_below(each, _PRIVATE)]
        keeper = self._keeper(
            ["--net", "--mount", "--uts", "--propagation", "private"],
            _MACHINE,
            NAME=name,
            INSTALLED=" ".join(self._installed),
            PRIVATE=" ".join(private),
            FOLDER=str(self.folder),
            ADDRESS=address,
        )
        machine = Machine(name, address, keeper.pid, f"machine{number}", self.folder)
        machine.connect()
        self._machines[name] = machine
        return machine

    def __getitem__(self, name: str) -> "Machine":
        return self._machines[name]

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            raise PeerUnavailable("machines are network namespaces, which only root can make")
        try:
            hub = self._keeper(["--net"], _HUB)
        except OSError as error:
            self._cleanup.close()
            raise PeerUnavailable(f"machines need iproute2 and namespaces: {error}") from error
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self._cleanup.callback(os.close, before)
        self._cleanup.callback(_enter_network, before)
        network = os.open(f"/proc/{hub.pid}/ns/net", os.O_RDONLY)
        try:
            _enter_network(network)
        finally:
            os.close(network)
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def _keeper(self, namespaces: Sequence[str], setup: str, **variables: str) -> subprocess.Popen[bytes]:
        """A process that keeps new namespaces; raises OSError if they cannot be made or set up."""
        keeper = subprocess.Popen(  # noqa: S603 - our own command line
            ["/usr/bin/env", "unshare", *namespaces, "/bin/sh", "-c", _KEEPER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": _path(), "SETUP": setup, **variables},
            start_new_session=True,
        )
        self._cleanup.callback(_end, keeper)
        assert keeper.stdout is not None and keeper.stderr is not None
        if keeper.stdout.readline() != b"ready\n":
            raise OSError(keeper.stderr.read().decode(errors="replace").strip())
        return keeper


class Machine:
    """One machine; `address` is where the others reach it."""

    def __init__(self, name: str, address: str, keeper: int, link: str, folder: Path) -> None:
        self.name = name
        self.address = address
        self._keeper = keeper
        self._link = link
        self._folder = folder

    def popen(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        output: IO[bytes] | int = subprocess.DEVNULL,
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Starts a program here, in the private folder; the process is the program's own."""
        return subprocess.Popen(  # noqa: S603 - a test's own command line
            self._command(command),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **options,
        )

    def run(self, command: Sequence[str], *, text: str = "") -> str:
        """What a command says that gets the text as its input; raises CalledProcessError."""
        done = subprocess.run(  # noqa: S603 - a test's own command line
            self._command(command), input=text, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S
        )
        return done.stdout

    def pids(self, having: str) -> list[int]:
        """The programs that run here and have this text in their command lines."""
        own = Path(f"/proc/{self._keeper}/ns/net").readlink()
        return [
            pid
            for pid in _pids()
            if pid != self._keeper and _network_of(pid) == own and having in _command_line(pid)
        ]

    def cut(self) -> None:
        """Takes it off the network; what runs here goes on, and nobody is told."""
        _ip("link", "set", self._link, "down")

    def heal(self) -> None:
        """Puts it back on the network."""
        _ip("link", "set", self._link, "up")

    def connect(self) -> None:
        """Puts it on the network for the first time."""
        _ip("link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", str(self._keeper))
        _ip("link", "set", self._link, "master", "bridge", "up")
        for command in (("addr", "add", f"{self.address}/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
            _call([*self._inside(), "ip", *command])

    def _command(self, command: Sequence[str]) -> list[str]:
        """Enters all namespaces, then the private folder, and becomes the command."""
        entered = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(self._folder)]
        return [*self._inside("--mount", "--uts"), *entered, *command]

    def _inside(self, *namespaces: str) -> list[str]:
        return ["nsenter", f"--target={self._keeper}", "--net", *namespaces]


def _ip(*arguments: str) -> None:
    _call(["ip", *arguments])


def _call(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT_S)  # noqa: S603 - our own


def _is_hidden(path: Path, folder: Path) -> bool:
    return _is_below(str(path), (*_PRIVATE, str(folder)))


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(Path(path) != Path(each) and Path(path).is_relative_to(each) for each in folders)


def _pids() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]


def _network_of(pid: int) -> Path | None:
    try:
        return Path(f"/proc/{pid}/ns/net").readlink()
    except OSError:  # it has ended meanwhile
        return None


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _enter_network(namespace: int) -> None:
    """Moves this thread, and what it starts from now on, into a network."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot enter the network namespace")


def _end(keeper: subprocess.Popen[bytes]) -> None:
    assert keeper.stdin is not None
    keeper.stdin.close()
    try:
        keeper.wait(_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        keeper.send_signal(signal.SIGKILL)
        keeper.wait()
    for pipe in (keeper.stdout, keeper.stderr):
        if pipe is not None:
            pipe.close()


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
