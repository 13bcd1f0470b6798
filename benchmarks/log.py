"""Our log against a real Kafka, in one run, with one librdkafka client.

    benchmarks/log.py [--quick] [--rounds N] [--only TEXT] [--json FILE]

Compared are our broker, which syncs before it acknowledges, Kafka with its default
settings, which does not, and Kafka told to sync (`flush.messages=1`); and, so that one sees
which bars of latency can be reached, `floor.c`, which is no broker but does the least that
one which syncs must do. All four run side by side, each stopped while another is measured; in each
round one client takes them in turns, phase by phase, so that a disturbance meets all of
them. Latency is measured twice: of brokers that were just started, and of warm ones. Every run
checks that what was read is what was written; a broker that fails that check ends the
benchmark.

Kafka's jars are fetched on the first run. Nothing leaves the loopback interface.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from brokers import BROKERS, FLOOR, KAFKA, KAFKA_SYNCING, OURS, RunningBroker, floor
from measure import Bar, Samples, host_kept_s, peak_bytes, print_table

from headrace.testing.kafka import KAFKA_VERSION, PeerUnavailable

CLIENT = Path(__file__).with_name("log_client.py")
CLIENT_TIMEOUT_S = 900
QUIET_CORES = 0.3
NOTABLE_SHARE = 0.005
START_UP, MEMORY, MACHINE = "start-up", "memory", "machine"
HOST_KEPT = "host_kept"  # the share of the processors' time that the host gave to others
PEERS = (KAFKA, KAFKA_SYNCING)
WARMUP_SAMPLES = 16_000  # records sent alone before Kafka's tail comes to rest, its compiler with it
SYNC_ALONE = "sync alone"  # what the disk takes for a record, measured by the client in the same moments


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Records of one size over so many partitions."""

    record_bytes: int
    partitions: int
    records: int

    @property
    def name(self) -> str:
        return f"{self.record_bytes} B x {self.partitions}"


WORKLOADS = (
    Workload(record_bytes=100, partitions=1, records=1_500_000),
    Workload(record_bytes=100, partitions=8, records=1_500_000),
    Workload(record_bytes=1000, partitions=1, records=150_000),
    Workload(record_bytes=1000, partitions=8, records=150_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured; a round begins only while `seconds` have not passed."""

    rounds: int
    starts: int
    young: int  # times that all are started anew for the latency of their first records
    seconds: float
    latency_samples: int
    warmup_samples: int  # over all workloads
    workloads: tuple[Workload, ...]
    warmups: tuple[Workload, ...]
    judged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One line of the table: what it is called, how it is written, what it must reach."""

    key: str
    title: str
    form: str = "{:,.0f}"
    scale: float = 1.0
    bars: Mapping[str, Bar] = dataclasses.field(default_factory=dict)


def at_least(factor: float) -> Bar:
    return Bar(factor=factor, at_least=True)


def at_most(factor: float) -> Bar:
    return Bar(factor=factor, at_least=False)


MEASURES = (
    Measure(
        key="produce_records_s",
        title="produce, records/s",
        bars={KAFKA: at_least(1.0), KAFKA_SYNCING: at_least(1.25)},
    ),
    Measure(key="produce_mb_s", title="produce, MB/s"),
    Measure(key="consume_records_s", title="consume, records/s", bars={KAFKA: at_least(1.0)}),
    Measure(key="consume_mb_s", title="consume, MB/s"),
    Measure(key="p50_ms", title="produce to consume, p50 ms", form="{:.2f}"),
    Measure(
        key="p99_ms",
        title="produce to consume, p99 ms",
        form="{:.2f}",
        bars={KAFKA_SYNCING: at_most(0.6)},
    ),
    Measure(key="young_p50_ms", title="the same since start, p50 ms", form="{:.2f}"),
    Measure(
        key="young_p99_ms",
        title="the same since start, p99 ms",
        form="{:.2f}",
        bars={KAFKA_SYNCING: at_most(0.6)},
    ),
    Measure(key="produce_application_busy", title="client's thread busy, in", form="{:.2f}"),
    Measure(key="consume_application_busy", title="client's thread busy, out", form="{:.2f}"),
    Measure(key="produce_broker_cpu_s_gb", title="broker CPU s per GB in", form="{:.2f}"),
    Measure(key="consume_broker_cpu_s_gb", title="broker CPU s per GB out", form="{:.2f}"),
)
# What there is to compare with besides brokers: the system and its measures, as the others have them.
LIMITS = (
    (FLOOR, Measure(key="produce_mb_s", title="the floor: produce, MB/s")),
    (FLOOR, Measure(key="consume_mb_s", title="the floor: consume, MB/s")),
    (FLOOR, Measure(key="p50_ms", title="the floor: p50 ms", form="{:.2f}")),
    (FLOOR, Measure(key="p99_ms", title="the floor: p99 ms", form="{:.2f}")),
    (FLOOR, Measure(key="young_p99_ms", title="the floor since start: p99 ms", form="{:.2f}")),
    (SYNC_ALONE, Measure(key="p50_ms", title="a sync alone: p50 ms", form="{:.2f}")),
    (SYNC_ALONE, Measure(key="p99_ms", title="a sync alone: p99 ms", form="{:.2f}")),
)
START_MEASURE = Measure(
    key="seconds", title="start-up, s", form="{:.2f}", bars={KAFKA: at_most(0.2), KAFKA_SYNCING: at_most(0.2)}
)
MEMORY_MEASURE = Measure(
    key="peak_bytes",
    title="peak resident MB under load",
    scale=1e-6,
    bars={KAFKA: at_most(0.125), KAFKA_SYNCING: at_most(0.125)},
)


def main() -> int:
    options = parse_arguments()
    plan, samples = make_plan(options), Samples()
    began = time.monotonic()
    try:
        measure_starts(plan, samples)
        measure_young(plan, samples)
        measure_load(plan, samples, time.monotonic())
    except PeerUnavailable as reason:
        print(f"no Kafka to compare with: {reason}", file=sys.stderr)
        return 2
    print_result(plan, samples, time.monotonic() - began)
    if options.json is not None:
        options.json.write_text(json.dumps(describe_run(plan, samples), indent=1))
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less of everything, in under two minutes")
    parser.add_argument("--rounds", type=int, help="measured rounds; medians are taken over them (default 5)")
    parser.add_argument(
        "--only", default="", help='subjects containing this text: "100 B", "x 8", "start-up"'
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample to this file")
    return parser.parse_args()


def make_plan(options: argparse.Namespace) -> Plan:
    shrink = 4 if options.quick else 1
    workloads = tuple(
        dataclasses.replace(each, records=each.records // shrink)
        for each in WORKLOADS
        if options.only in each.name
    )
    return Plan(
        rounds=options.rounds or (1 if options.quick else 5),
        starts=0 if options.only not in START_UP else 1 if options.quick else 3,
        young=0 if options.quick else 3,
        seconds=60 if options.quick else 900,
        latency_samples=400 if options.quick else 2000,
        warmup_samples=400 if options.quick else WARMUP_SAMPLES,
        workloads=workloads,
        warmups=workloads[:1] if options.quick else workloads,
        judged=not options.quick,
    )


def measure_starts(plan: Plan, samples: Samples) -> None:
    """Each broker alone on a new data directory, several times."""
    for number in range(plan.starts):
        for system, start in BROKERS.items():
            with start() as broker:
                samples.add(system, START_UP, START_MEASURE.key, broker.start_seconds)
                say(f"start {number + 1}/{plan.starts}: {system} {broker.start_seconds:.2f} s")


def measure_young(plan: Plan, samples: Samples) -> None:
    """All of them started anew, several times: their first records, sent one by one."""
    for number in range(1, plan.young + 1):
        with running_all() as running:
            for workload in plan.workloads:
                bare = dataclasses.replace(workload, records=0)
                results = run_client(CLIENT, jobs(plan, bare, running, number, alone=True), workload.name)
                for system, result in results.items():
                    for measure, value in result.items():
                        samples.add(system, workload.name, f"young_{measure}", value)
                told = ", ".join(f"{system} {result['p99_ms']:.2f}" for system, result in results.items())
                say(f"since start {number}/{plan.young}: {workload.name:11} p99 ms: {told}")


@contextlib.contextmanager
def running_all() -> Iterator[dict[str, RunningBroker]]:
    with contextlib.ExitStack() as stack:
        running = {system: stack.enter_context(start()) for system, start in BROKERS.items()}
        yield {**running, FLOOR: stack.enter_context(floor())}


def measure_load(plan: Plan, samples: Samples, began: float) -> None:
    """A round that is not counted, for the peers' compilers, and then those that are."""
    if not plan.workloads:
        return
    with running_all() as running:
        one_round(warm_up(plan), running, Samples(), 0)
        for number in range(1, plan.rounds + 1):
            with noting_host(samples):
                one_round(plan, running, samples, number)
            if time.monotonic() - began > plan.seconds:
                say(f"time is up after {number} of {plan.rounds} rounds")
                break
        for system in BROKERS:
            samples.add(system, MEMORY, MEMORY_MEASURE.key, peak_bytes(running[system].pid))


@contextlib.contextmanager
def noting_host(samples: Samples) -> Iterator[None]:
    kept_s, began = host_kept_s(), time.monotonic()
    yield
    share = (host_kept_s() - kept_s) / (time.monotonic() - began) / (os.cpu_count() or 1)
    samples.add(MACHINE, MACHINE, HOST_KEPT, share)


def warm_up(plan: Plan) -> Plan:
    each = plan.warmup_samples // len(plan.warmups)
    return dataclasses.replace(plan, workloads=plan.warmups, latency_samples=each)


def one_round(plan: Plan, running: Mapping[str, RunningBroker], samples: Samples, number: int) -> None:
    for workload in plan.workloads:
        results = run_client(CLIENT, jobs(plan, workload, running, number), workload.name)
        stage = f"round {number}/{plan.rounds}" if number else "warm-up"
        for system, result in results.items():
            for measure, value in result.items():
                samples.add(system, workload.name, measure, value)
            if system == SYNC_ALONE:
                continue
            say(f"{stage}: {progress(workload, system, result)}")


def turned(systems: Iterable[str], number: int) -> Iterator[str]:
    """The same systems, beginning with another one each round."""
    known = list(systems)
    for i in range(len(known)):
        yield known[(i + number) % len(known)]


def jobs(
    plan: Plan,
    workload: Workload,
    running: Mapping[str, RunningBroker],
    number: int,
    *,
    alone: bool = False,
) -> dict[str, dict[str, object]]:
    return {
        system: {
            "bootstrap": running[system].bootstrap,
            "pid": running[system].pid,
            "record_bytes": workload.record_bytes,
            "partitions": workload.partitions,
            "records": workload.records,
            "latency_samples": plan.latency_samples,
            "held": number > 0,  # while they warm up, compilers may use every moment
            "alone": alone,
        }
        for system in turned(running, number)
    }


def run_client(
    client: Path, jobs: Mapping[str, Mapping[str, object]], name: str
) -> dict[str, dict[str, float]]:
    """What the client measured of each system; a wrong answer of any of them ends the benchmark."""
    command = [sys.executable, str(client), json.dumps(jobs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise SystemExit(f"no ratio is printed, since the client failed on {name}:\n{done.stderr}")
    results: dict[str, dict[str, float]] = json.loads(done.stdout)
    return results


def progress(workload: Workload, system: str, result: Mapping[str, float]) -> str:
    return (
        f"{workload.name:11} {system:13} in {result['produce_records_s']:9,.0f}/s"
        f"  out {result['consume_records_s']:9,.0f}/s  p99 {result['p99_ms']:5.2f} ms"
        f"  (other processes: {result['others_cores']:.1f} cores)"
    )


def print_result(plan: Plan, samples: Samples, seconds: float) -> None:
    rows = [("what", "measure", "ours", "Kafka", "ratio", "bar", "Kafka syncing", "ratio", "bar")]
    for workload in plan.workloads:
        rows += [row(plan, samples, workload.name, measure) for measure in MEASURES]
        rows += [row(plan, samples, workload.name, measure, system) for system, measure in LIMITS]
    if plan.starts:
        rows.append(row(plan, samples, START_UP, START_MEASURE))
    if plan.workloads:
        rows.append(row(plan, samples, MEMORY, MEMORY_MEASURE))
    print(f"\n{datetime.date.today()}, {machine()}, {seconds:.0f} s in all; Kafka {KAFKA_VERSION}")
    print("Medians; a ratio is ours / theirs, the median of the rounds' own ratios.")
    for caution in cautions(plan, samples):
        print(caution)
    print()
    print_table(rows)


def cautions(plan: Plan, samples: Samples) -> Iterator[str]:
    """What a reader must know before believing a ratio."""
    if not plan.judged:
        yield "A quick run: Kafka is not warm and one round is no median, so nothing is judged."
    kept = statistics.median(samples.all_of(HOST_KEPT) or [0.0])
    if kept > NOTABLE_SHARE:
        yield (
            f"The host kept back {kept:.1%} of the processors' time in the median round:"
            " the slowest records of everybody are its doing too."
        )
    others = statistics.median(samples.all_of("others_cores") or [0.0])
    if others > QUIET_CORES:
        yield (
            f"Not a quiet machine: other processes had {others:.1f} of {os.cpu_count()} cores"
            " in the median run. Run again when it is."
        )


def row(plan: Plan, samples: Samples, subject: str, measure: Measure, system: str = OURS) -> tuple[str, ...]:
    cells = [subject, measure.title, cell(samples, system, subject, measure)]
    for peer in PEERS:
        ratio = samples.median_ratio(system, peer, subject, measure.key)
        bar = measure.bars.get(peer) if plan.judged else None
        cells.append(cell(samples, peer, subject, measure))
        cells.append("-" if ratio is None else f"{ratio:.2f}")
        cells.append(bar.verdict(ratio) if bar is not None and ratio is not None else "")
    return tuple(cells)


def cell(samples: Samples, system: str, subject: str, measure: Measure) -> str:
    median = samples.median(system, subject, measure.key)
    return "-" if median is None else measure.form.format(median * measure.scale)


def describe_run(plan: Plan, samples: Samples) -> dict[str, object]:
    return {
        "date": str(datetime.date.today()),
        "machine": machine(),
        "kafka": KAFKA_VERSION,
        "plan": dataclasses.asdict(plan),
        "samples": samples.as_json(),
    }


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
