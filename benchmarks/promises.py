"""What our log promises against a real Kafka, in one run, with one librdkafka client.

    benchmarks/promises.py [--quick] [--rounds N] [--only TEXT] [--json FILE]

Idempotent producing, transactions of 1, 100 and 10,000 records, and share-group
consumption, on our broker, which syncs before it acknowledges, on Kafka with its
default settings, which does not, and on Kafka told to sync (`flush.messages=1`). How the
runs stand next to each other is told in `log.py`. Everything written is read back under
read_committed and compared before a ratio is printed.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from brokers import BROKERS, KAFKA, KAFKA_SYNCING, RunningBroker
from log import Measure, at_least, at_most, cautions, machine, row, run_client, say, turned
from measure import Samples, print_table

from headrace.client.connect.channel import Channel
from headrace.testing.kafka import KAFKA_VERSION, PeerUnavailable
from headrace.wire import Api

CLIENT = Path(__file__).with_name("promises_client.py")
SHARE = "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One line of work; `each` is the number of records in a transaction."""

    name: str
    kind: str
    records: int
    partitions: int = 4
    record_bytes: int = 100
    each: int = 1


WORKLOADS = (
    Workload(name="idempotent", kind="idempotent", records=600_000),
    Workload(name="transactions of 1", kind="transactions", records=2_000),
    Workload(name="transactions of 100", kind="transactions", records=50_000, each=100),
    Workload(name="transactions of 10,000", kind="transactions", records=400_000, each=10_000),
    Workload(name="share group", kind=SHARE, records=100_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured; a round begins only while `seconds` have not passed."""

    rounds: int
    seconds: float
    workloads: tuple[Workload, ...]
    judged: bool


THROUGHPUT = Measure(key="records_s", title="records/s", bars={KAFKA: at_least(1.0)})
RECORD_CPU = Measure(key="broker_cpu_us_record", title="broker CPU us a record", form="{:.2f}")
TRANSACTION = (
    Measure(key="transactions_s", title="transactions/s", form="{:,.1f}"),
    Measure(key="broker_cpu_ms_transaction", title="broker CPU ms a transaction", form="{:.2f}"),
    Measure(key="p50_ms", title="a transaction, p50 ms", form="{:.2f}"),
)
TAIL = "a transaction, p99 ms"
MEASURES: dict[str, tuple[Measure, ...]] = {
    "idempotent": (THROUGHPUT, RECORD_CPU),
    "transactions": (THROUGHPUT, *TRANSACTION, Measure(key="p99_ms", title=TAIL, form="{:.2f}")),
    SHARE: (THROUGHPUT, RECORD_CPU),
}
ONE_RECORD = (
    THROUGHPUT,
    *TRANSACTION,
    Measure(key="p99_ms", title=TAIL, form="{:.2f}", bars={KAFKA: at_most(1.0), KAFKA_SYNCING: at_most(1.0)}),
)


def measures(workload: Workload) -> tuple[Measure, ...]:
    one_record = workload.kind == "transactions" and workload.each == 1
    return ONE_RECORD if one_record else MEASURES[workload.kind]


def main() -> int:
    options = parse_arguments()
    plan, samples = make_plan(options), Samples()
    began = time.monotonic()
    try:
        skipped = measure(plan, samples, began)
    except PeerUnavailable as reason:
        print(f"no Kafka to compare with: {reason}", file=sys.stderr)
        return 2
    print_result(plan, samples, skipped, time.monotonic() - began)
    if options.json is not None:
        described = {
            "date": str(datetime.date.today()),
            "machine": machine(),
            "kafka": KAFKA_VERSION,
            "plan": dataclasses.asdict(plan),
            "skipped": skipped,
            "samples": samples.as_json(),
        }
        options.json.write_text(json.dumps(described, indent=1))
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less of everything, in about a minute")
    parser.add_argument("--rounds", type=int, help="measured rounds; medians are taken over them (default 5)")
    parser.add_argument(
        "--only",
        default="",
        help='the workload of this name, or those containing the text: "transactions of 1", "of 1", "share"',
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample to this file")
    return parser.parse_args()


def make_plan(options: argparse.Namespace) -> Plan:
    shrink = 4 if options.quick else 1
    named = [each for each in WORKLOADS if each.name == options.only]
    chosen = named or [each for each in WORKLOADS if options.only in each.name]
    workloads = tuple(dataclasses.replace(each, records=each.records // shrink) for each in chosen)
    return Plan(
        rounds=options.rounds or (1 if options.quick else 5),
        seconds=60 if options.quick else 540,
        workloads=workloads,
        judged=not options.quick,
    )


def measure(plan: Plan, samples: Samples, began: float) -> dict[str, str]:
    """A round that is not counted, for the peers' compilers, and those that are; what was left out, why."""
    with contextlib.ExitStack() as stack:
        running = {system: stack.enter_context(start()) for system, start in BROKERS.items()}
        skipped = {
            each.name: reason
            for each in plan.workloads
            if each.kind == SHARE and (reason := why_no_share_groups(running))
        }
        plan = dataclasses.replace(
            plan, workloads=tuple(each for each in plan.workloads if each.name not in skipped)
        )
        one_round(plan, running, Samples(), 0)
        for number in range(1, plan.rounds + 1):
            one_round(plan, running, samples, number)
            if time.monotonic() - began > plan.seconds:
                say(f"time is up after {number} of {plan.rounds} rounds")
                break
    return skipped


def why_no_share_groups(running: Mapping[str, RunningBroker]) -> str:
    """Empty if every broker serves share groups."""
    without = [system for system, broker in running.items() if not serves(broker, Api.SHARE_FETCH)]
    return f"{', '.join(without)} does not advertise ShareFetch" if without else ""


def serves(broker: RunningBroker, api: Api) -> bool:
    host, port = broker.bootstrap.split(":")
    channel = Channel(host, int(port), client_id="bench", timeout_ms=10_000)
    try:
        asked = {"client_software_name": "headrace-bench", "client_software_version": "1"}
        answer = channel.request(Api.API_VERSIONS, 3, asked)
        return any(each.api_key == int(api) for each in answer.api_keys)
    finally:
        channel.close()


def one_round(plan: Plan, running: Mapping[str, RunningBroker], samples: Samples, number: int) -> None:
    for workload in plan.workloads:
        results = run_client(CLIENT, jobs(workload, running, number), workload.name)
        stage = f"round {number}/{plan.rounds}" if number else "warm-up"
        for system, result in results.items():
            for key, value in result.items():
                samples.add(system, workload.name, key, value)
            say(f"{stage}: {progress(workload, system, result)}")


def jobs(
    workload: Workload, running: Mapping[str, RunningBroker], number: int
) -> dict[str, dict[str, object]]:
    work = dataclasses.asdict(workload)
    del work["name"]
    return {
        system: {
            "bootstrap": running[system].bootstrap,
            "pid": running[system].pid,
            "held": number > 0,  # while they warm up, compilers may use every moment
            **work,
        }
        for system in turned(running, number)
    }


def progress(workload: Workload, system: str, result: Mapping[str, float]) -> str:
    tail = f"  p99 {result['p99_ms']:7.2f} ms" if "p99_ms" in result else ""
    return (
        f"{workload.name:22} {system:13} {result['records_s']:9,.0f} records/s{tail}"
        f"  (other processes: {result['others_cores']:.1f} cores)"
    )


def print_result(plan: Plan, samples: Samples, skipped: Mapping[str, str], seconds: float) -> None:
    rows = [("what", "measure", "ours", "Kafka", "ratio", "bar", "Kafka syncing", "ratio", "bar")]
    for workload in plan.workloads:
        if workload.name not in skipped:
            rows += [row(plan, samples, workload.name, each) for each in measures(workload)]
    print(f"\n{datetime.date.today()}, {machine()}, {seconds:.0f} s in all; Kafka {KAFKA_VERSION}")
    print("Medians; a ratio is ours / theirs, the median of the rounds' own ratios.")
    for caution in cautions(plan, samples):
        print(caution)
    for name, reason in skipped.items():
        print(f"Not measured: {name}: {reason}.")
    print()
    print_table(rows)


if __name__ == "__main__":
    sys.exit(main())
