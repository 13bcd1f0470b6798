"""What stands for a planner of Spark: asks for one to be forked, and ends when it does.

`python.sh` runs this file by itself, without site-packages, so that it takes a hundredth of a second.
Where nobody forks any more, it becomes the planner, which imports what it needs as it always did.
"""

import os
import socket
import sys

__all__: list[str] = []


def ask(address: str, arguments: list[str]) -> None:
    """Passes on these, this process's files and its environment, and waits; OSError: nobody is there."""
    with socket.socket(socket.AF_UNIX) as orders:
        orders.connect(address)
        variables = [name + b"=" + text for name, text in os.environb.items()]
        order = b"\0".join([*(each.encode() for each in arguments), b"", *variables])
        socket.send_fds(orders, [len(order).to_bytes(4, "big")], [0, 1, 2])
        orders.sendall(order)
        orders.recv(1)  # nothing comes: it is closed by the end of the planner


if __name__ == "__main__":
    try:
        ask(sys.argv[1], sys.argv[2:])
    except OSError:
        os.execv(sys.executable, [sys.executable, "-m", *sys.argv[2:]])  # noqa: S606 - no shell is wanted
