"""Headrace's side of `windows.py`: an application on a log, run to the end of it.

Reads requests as JSON lines and answers each with the seconds from the first
micro-batch's start to the last one's end, and the result as a Parquet file.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from peers import micro_batch_seconds
from windows_app import clicks

from headrace.app.options import RunOptions
from headrace.app.run.runner import running
from headrace.streams import local_spark


def answer(request: dict[str, Any]) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-windows-"))
    try:
        options = RunOptions(data=folder, bootstrap=request["bootstrap"], until_caught_up=True)
        store = None if request.get("store") == "default" else f"parquet:///{folder / 'view'}"
        with running(clicks(request["topic"], request["window"], store), options) as run:
            run.wait()
            query = run.queries[request["topic"]].spark_query
            progress = [{"rows": each["numInputRows"], **each["durationMs"]} for each in query.recentProgress]
            if request["out"]:
                write(run.stores["counts"].snapshot("counts").rows, Path(request["out"]))
            return {"seconds": micro_batch_seconds(query.recentProgress), "batches": progress}
    finally:
        shutil.rmtree(folder)


def write(rows: pa.Table, folder: Path) -> None:
    folder.mkdir(parents=True)
    times = {
        name: rows[f"window_{name}"].combine_chunks().view(pa.int64()).to_numpy() // 1000
        for name in ("start", "end")
    }
    table = pa.table({"user": rows["user"], **times, "n": rows["n"], "total": rows["total"]})
    pq.write_table(table, folder / "part.parquet")


def main() -> None:
    local_spark("windows", settings={"spark.driver.memory": "4g"})
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
