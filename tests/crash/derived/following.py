"""Runs one follower, and ends the process hard when it comes to a point for the n-th time."""

import os
import sys
import threading

import orjson

from headrace import crash_points
from headrace.client import Connection
from headrace.derived import FollowRun, open_target
from headrace.derived.spec import parse_follow


def main() -> None:
    bootstrap, said, point, times = sys.argv[1:]
    seen = [0]

    def look(reached: str) -> None:
        if reached == point:
            seen[0] += 1
            if seen[0] >= int(times):
                os._exit(9)

    crash_points.watch(look)
    follow = parse_follow(orjson.loads(said))
    run = FollowRun(follow, open_target(follow), Connection(bootstrap_servers=bootstrap))
    run._on_status = lambda status: run.stop() if status.behind == 0 and status.state == "following" else None
    thread = threading.Timer(240, lambda: os._exit(3))
    thread.daemon = True
    thread.start()
    run.run()


if __name__ == "__main__":
    main()
