"""Claim: windows of JSON events at 4 times the speed of the best of the others, 3 times at a million keys.

    python benchmarks/windows.py [--quick] [--events 5000000] [--rounds 3] [--only ours,bare,…] [--long]

The same events (see `clicks.py`) for everybody: an application of ours on our log, with
its view kept in Parquet; Spark's own operators with from_json, on files with our Spark and
on a real Kafka with its connector; Flink SQL on the same Kafka; Pathway on files; and a
bare pyarrow program that parses and groups the files on both cores. Every system is a
process that stays for the whole run. It first answers once with its results written, which
warms it up and is checked against the bare program's; no ratio is printed for a system
whose results differ. Then come the rounds, system after system; the best round counts, and
the peers write nothing. Behind them, for tumbling windows at the first number of keys, what a
user gets who has done nothing but install: ours warm with the default store, and ours and
Spark on files cold, from the start of a process to its results written, best of the rounds.
`--long` runs ours alone on 1, 10 and 50 million events: cost per
event and memory. `--quick` is 2 million events and one round.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
from clicks import fill_topic, write_files
from environments import SPARK_400, PeerUnavailable, jars, python_with
from measure import print_table
from systems import System, started

from headrace.testing.broker import BrokerProcess
from headrace.testing.kafka import KafkaServer

HERE = Path(__file__).parent
WINDOWS = ("tumbling", "hopping", "session")
KEYS = {10_000: 4.0, 1_000_000: 3.0}  # and how many times the best peer ours must be
SYSTEMS = ("bare", "ours", "spark-files", "pathway", "flink", "spark-kafka")
ON_KAFKA = ("flink", "spark-kafka")
COLUMNS = ["user", "start", "end", "n", "total"]
SPARK_KAFKA = (("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.0.0"),)
FLINK_KAFKA = (("org.apache.flink", "flink-sql-connector-kafka", "5.0.0-2.2"),)


def command_of(system: str) -> tuple[list[str], dict[str, str]]:
    """How a system is started; raises PeerUnavailable with the reason where it cannot be."""
    peers, surroundings = str(HERE / "windows_peers.py"), dict(os.environ)
    if system == "ours":
        return [sys.executable, str(HERE / "windows_ours.py")], surroundings
    if system in ("bare", "spark-files"):
        return [sys.executable, peers, system], surroundings
    if system == "pathway":
        surroundings["PATHWAY_THREADS"] = "2"
        return [python_with("pathway", "pathway"), peers, system], surroundings
    if system == "flink":
        python = python_with("flink", "apache-flink==2.3.0")
        surroundings["PEER_JARS"] = jars("flink-kafka", FLINK_KAFKA, ("flink-sql-connector-kafka",))
        return [python, peers, system], surroundings
    python = python_with(*SPARK_400)
    wanted = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
    surroundings["PEER_JARS"] = jars("spark-kafka-4.0.0", SPARK_KAFKA, wanted)
    return [python, peers, system], surroundings


# --- results ------------------------------------------------------------------------------------


def results(folder: Path) -> pd.DataFrame:
    """What a system wrote, without the events that only end the stream."""
    files = sorted(each for each in folder.rglob("*") if each.is_file() and each.name[0] not in "._")
    files = [each for each in files if "_spark_metadata" not in each.parts and each.stat().st_size]
    frame = pa.concat_tables(_read(each) for each in files).to_pandas()
    return frame[frame["user"] != "end"]


def difference(right: pd.DataFrame, found: pd.DataFrame) -> str:
    """What is wrong with the results, by an example; empty if they are equal, in whatever order."""
    digests = [pd.util.hash_pandas_object(each, index=False).to_numpy() for each in (right, found)]
    if len(right) == len(found) and digests[0].sum() == digests[1].sum():
        return ""
    other = pd.concat([right.assign(side="right"), found.assign(side="found")])
    other = other.drop_duplicates(COLUMNS, keep=False).head(3)
    return f"{len(found):,} rows, {len(right):,} are right; {other.to_dict('records')}"


def _read(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        table = pq.read_table(path)
    elif path.suffix == ".csv":
        table = pc.read_csv(path)
    else:
        table = pc.read_csv(path, read_options=pc.ReadOptions(column_names=COLUMNS))
    types = [pa.string(), *[pa.int64()] * 4]
    return table.select(COLUMNS).cast(pa.schema(list(zip(COLUMNS, types, strict=True))))


@dataclass(slots=True)
class Cell:
    """One window and number of keys: the best seconds of every system whose results are right."""

    window: str
    keys: int
    seconds: dict[str, float] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)


def measure(
    cell: Cell, systems: list[System], places: dict[str, dict[str, str]], events: int, rounds: int
) -> None:
    right: pd.DataFrame | None = None
    for system in list(systems):
        place = places[system.name]
        with tempfile.TemporaryDirectory(prefix="headrace-results-") as folder:
            out = Path(folder) / "out"
            try:
                system.ask(window=cell.window, out=str(out), **place)
                found = results(out)
            except PeerUnavailable as error:
                print(f"  {system.name} is left out: {error}", file=sys.stderr)
                systems.remove(system)
                continue
        right = found if right is None else right
        if reason := difference(right, found):
            cell.wrong[system.name] = reason
            print(f"  {cell.window:9} {cell.keys:>9,} keys  {system.name:12} differs: {reason}", flush=True)
            continue
        for _ in range(rounds):
            seconds = float(system.ask(window=cell.window, out=None, **place)["seconds"])
            cell.seconds[system.name] = min(seconds, cell.seconds.get(system.name, seconds))
        rate = events / cell.seconds[system.name]
        print(f"  {cell.window:9} {cell.keys:>9,} keys  {system.name:12} {rate:12,.0f} events/s", flush=True)


def report(cells: list[Cell], events: int) -> None:
    rows: list[tuple[str, ...]] = [("window", "keys", *SYSTEMS, "ours / best peer", "", "ours / bare", "")]
    for cell in cells:
        rates = {name: events / seconds for name, seconds in cell.seconds.items()}
        peers = [rate for name, rate in rates.items() if name not in ("ours", "bare")]
        figures = [f"{rates[each]:,.0f}" if each in rates else "-" for each in SYSTEMS]
        best = rates["ours"] / max(peers) if "ours" in rates and peers else None
        half = rates["ours"] / rates["bare"] if {"ours", "bare"} <= rates.keys() else None
        rows.append(
            (cell.window, f"{cell.keys:,}", *figures, *_verdict(best, KEYS[cell.keys]), *_verdict(half, 0.5))
        )
        for name, reason in cell.wrong.items():
            print(f"  {cell.window}, {cell.keys:,} keys: {name} is not compared: {reason}")
    print_table(rows)


def _verdict(ratio: float | None, bar: float) -> tuple[str, str]:
    if ratio is None:
        return "-", ""
    return f"{ratio:.2f}", f"≥ {bar:g} {'pass' if ratio >= bar else 'MISS'}"


# --- the run ------------------------------------------------------------------------------------


def compare(names: list[str], events: int, rounds: int, wanted_keys: list[int], windows: list[str]) -> None:
    with contextlib.ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="headrace-windows-")))
        ours = ending.enter_context(BrokerProcess(folder / "log"))
        kafka = None
        if set(names) & set(ON_KAFKA):
            try:
                kafka = ending.enter_context(KafkaServer())
            except PeerUnavailable as error:
                print(f"  no Kafka: {error}", file=sys.stderr)
                names = [each for each in names if each not in ON_KAFKA]
        systems = ending.enter_context(started(names, command_of))
        cells = []
        for keys in wanted_keys:
            topic = f"clicks-{keys}"
            files = write_files(folder / topic, events, keys)
            fill_topic(ours.bootstrap, topic, events, keys)
            if kafka is not None:
                fill_topic(kafka.bootstrap, topic, events, keys)
            places = {
                each: {"folder": str(files), "topic": topic, "bootstrap": ours.bootstrap} for each in names
            }
            for each in ON_KAFKA:
                places.setdefault(each, {})["bootstrap"] = kafka.bootstrap if kafka else ""
            for window in windows:
                cells.append(Cell(window, keys))
                measure(cells[-1], systems, places, events, rounds)
        report(cells, events)
        if cells[0].window == "tumbling":
            topic = f"clicks-{cells[0].keys}"
            first = {
                name: {**place, "topic": topic, "folder": str(folder / topic)}
                for name, place in places.items()
            }
            first_meeting(systems, first, cells[0], events, rounds)
        print_table(
            [
                ("system", "largest memory, MB"),
                *[(each.name, f"{each.peak_bytes >> 20:,}") for each in systems],
            ]
        )


# --- as a user meets it -------------------------------------------------------------------------


def cold_seconds(system: str, place: dict[str, str]) -> float:
    """From starting the process to its results, which ours keeps in the default store."""
    with tempfile.TemporaryDirectory(prefix="headrace-cold-") as folder:
        begin = time.monotonic()
        if system == "ours":
            command = [
                sys.executable,
                "-m",
                "headrace",
                "run",
                str(HERE / "windows_app.py"),
                "--data",
                folder,
            ]
            command += ["--bootstrap", place["bootstrap"], "--until-caught-up", "--json"]
            surroundings = {**os.environ, "CLICKS_TOPIC": place["topic"]}
            subprocess.run(command, env=surroundings, stdout=subprocess.DEVNULL, check=True)
            return time.monotonic() - begin
        peer = System(system, *command_of(system))
        try:
            peer.ask(window="tumbling", out=str(Path(folder) / "out"), **place)
            return time.monotonic() - begin
        finally:
            peer.close()


def first_meeting(
    systems: list[System], places: dict[str, dict[str, str]], cell: Cell, events: int, rounds: int
) -> None:
    """The default store beside the warm figure, and cold starts: ours as `headrace run`, and Spark's own."""
    names = [each.name for each in systems]
    if "ours" not in cell.seconds:
        return
    ours = systems[names.index("ours")]
    place = {"window": cell.window, "out": None, "store": "default", **places["ours"]}
    ours.ask(**place)
    default = min(float(ours.ask(**place)["seconds"]) for _ in range(rounds))
    rows: list[tuple[str, ...]] = [(f"{cell.window}, {cell.keys:,} keys", "seconds", "events/s")]
    measured = {"ours, warm, Parquet": cell.seconds["ours"], "ours, warm, default store": default}
    for each in [name for name in ("ours", "spark-files") if name in names]:
        measured[f"{each}, cold, all in all"] = min(cold_seconds(each, places[each]) for _ in range(rounds))
    rows += [(name, f"{seconds:.1f}", f"{events / seconds:,.0f}") for name, seconds in measured.items()]
    print_table(rows)
    cold = [seconds for name, seconds in measured.items() if "cold" in name]
    if len(cold) == 2:
        print(f"cold, ours / Spark on files: {cold[0] / cold[1]:.2f} of the time")


def lengths(sizes: list[int]) -> None:
    """Cost per event and memory of ours as the input grows."""
    rows: list[tuple[str, ...]] = [("events", "events/s", "µs per event", "memory, MB")]
    costs = []
    with (
        tempfile.TemporaryDirectory(prefix="headrace-windows-") as folder,
        BrokerProcess(Path(folder) / "log") as log,
    ):
        fill_topic(log.bootstrap, "warm", 1_000_000, 10_000)
        for events in sizes:
            topic = f"clicks-{events}"
            fill_topic(log.bootstrap, topic, events, 10_000)
            with started(["ours"], command_of) as (ours,):
                ours.ask(window="tumbling", out=None, topic="warm", bootstrap=log.bootstrap)
                place = {"topic": topic, "bootstrap": log.bootstrap}
                seconds = ours.ask(window="tumbling", out=None, **place)["seconds"]
                costs.append(seconds / events * 1e6)
                rows.append(
                    (
                        f"{events:,}",
                        f"{events / seconds:,.0f}",
                        f"{costs[-1]:.3f}",
                        f"{ours.peak_bytes >> 20:,}",
                    )
                )
    print_table(rows)
    growth = costs[-1] / costs[0]
    print(f"cost per event, most / fewest: {growth:.2f}  ≤ 1.2 {'pass' if growth <= 1.2 else 'MISS'}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--only", default=",".join(SYSTEMS))
    parser.add_argument("--keys", type=int, nargs="*", default=list(KEYS))
    parser.add_argument("--windows", default=",".join(WINDOWS))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what was started
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    if given.long:
        lengths([1_000_000, 10_000_000, given.events or 50_000_000])
        return
    events = given.events or (2_000_000 if given.quick else 5_000_000)
    rounds = given.rounds or (1 if given.quick else 3)
    names = [each for each in SYSTEMS if each in given.only.split(",")]
    print(f"{events:,} events, best of {rounds} after a warm-up")
    compare(names, events, rounds, given.keys, given.windows.split(","))
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
