"""A bit that flips in any file of a data directory, or a file that is cut short.

`SameOrRefused`: what is opened then holds exactly what it held, the file having been made
again where need be; or it is refused, and the message names the file and what to do. Of a
segment the damaged records are named instead, and all others are served.
"""

import logging
from pathlib import Path

import pytest

from headrace.broker.access.acls import Acl
from headrace.broker.access.scram import Mechanism, credential_from_password
from headrace.broker.access.state import AccessState
from headrace.broker.access.store import AccessStore
from headrace.broker.limits.quotas import CONSUMER, PRODUCER, quotas_file, read_quotas, write_quotas
from headrace.checked_json import encode_fields
from headrace.errors import ConfigError, CorruptionError
from headrace.records import HEADER_BYTES, Marker, Record, decode_batch, encode_batch
from headrace.storage import DataDirectory
from headrace.testing.batches import batch, batches_in, commit
from headrace.testing.disk import SimulatedDisk

DATA = Path("data")
SMALL = {"segment.bytes": "1024", "index.interval.bytes": "256"}
REMEDIES = ("restore", "install", "remove", "move")


def sent(sequence, value, producer, *, transactional=False):
    return encode_batch(
        [Record(0, 1000, b"k%d" % producer, value)],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=transactional,
    )


def populated():
    """A disk with a data directory that has one of every file, closed cleanly."""
    disk = SimulatedDisk()
    directory = DataDirectory(DATA, disk=disk)
    plain = directory.create_topic("plain", 2, {**SMALL, "retention.ms": "-1"})
    log = plain.partitions[1]
    for number in range(4):
        commit(log, sent(number, b"x" * 400, 1))
    commit(log, sent(0, b"void", 2, transactional=True))
    log.append_marker(Marker(2, 0, 0, commit=False), now_ms=1)
    commit(log, sent(0, b"open", 3, transactional=True))
    log.delete_before(1)
    compacted = directory.create_topic("compacted", 1, {**SMALL, "cleanup.policy": "compact"}).partitions[0]
    for number in range(6):
        commit(compacted, batch(b"%d" % number * 300, key=b"%d" % (number % 2)))
    for number in range(12):  # several to one entry of the index, with gaps between them
        commit(compacted, batch(b"%d" % number, key=b"key" if number % 3 else b"k%d" % number))
    compacted.roll()
    assert compacted.compact(now_ms=10**12)
    _hurt(disk, directory.create_topic("hurt", 1, SMALL).partitions[0])
    commit(directory.create_topic("fast", 1, {"headrace.storage": "memory"}).partitions[0], batch(b"gone"))
    directory.allocate_producer_ids(10)
    write_quotas(quotas_file(disk, DATA), {"a": {PRODUCER: 5.0}, None: {CONSUMER: 2.5}})
    secret = credential_from_password(Mechanism.SCRAM_SHA_256, "pencil", b"salt", 4096)
    entry = Acl(2, 3, "plain", "User:a", "*", 3, 3)
    state = AccessState(decoy_secret=b"decoy").with_acls(frozenset({entry})).with_credential("a", secret)
    AccessStore(DATA, disk).save(state)
    directory.close()
    return disk.after_power_cut()


def _hurt(disk, log):
    for number in range(4):
        commit(log, batch(b"%d" % number * 400))
    disk.flip(log._reader.segments[0].path, 500)
    with pytest.raises(CorruptionError):
        log.read(1, 100)


def records_of(log):
    """What a patient reader gets, stepping over damage."""
    offset, found = log.start_offset, []
    while offset < log.high_watermark:
        try:
            data = log.read(offset, 4096)
        except CorruptionError:
            offset = min(each.next_offset for each in log.damage if each.next_offset > offset)
            continue
        if not data:
            break
        for position, header in batches_in(data):
            records = [] if header.is_control else decode_batch(data, position)
            found += [(each.offset, each.key, each.value) for each in records if each.offset >= offset]
            offset = header.next_offset
    return found


def state_of(log):
    return {
        "offsets": (log.start_offset, log.high_watermark, log.last_stable_offset),
        "producers": sorted(log.producers()),
        "aborted": log.aborted(0, log.high_watermark),
        "records": records_of(log),
        "damage": log.damage,
    }


def contents(disk):
    """Everything that a broker takes from its data directory, and the logs in it."""
    directory = DataDirectory(DATA, disk=disk)
    described = {
        "cluster": directory.cluster_id,
        "producer ids": directory.allocate_producer_ids(1),
        "quotas": read_quotas(quotas_file(disk, DATA)),
        "access": AccessStore(DATA, disk).load(),
        "topics": {name: (topic.id, topic.overrides) for name, topic in directory.topics.items()},
    }
    logs = {
        (topic.name, n): log for topic in directory.topics.values() for n, log in enumerate(topic.partitions)
    }
    return described, {place: state_of(log) for place, log in logs.items()}


def files_of(disk, path=DATA):
    """Every file below a directory."""
    for name in disk.list(path):
        try:
            yield from files_of(disk, path / name)
        except NotADirectoryError:
            yield path / name


def is_segment(path):
    return path.suffix in (".log", ".clog")


def check(disk, path, expected):
    """Opens a disk in which that file is not what it was."""
    try:
        described, logs = contents(disk)
    except (CorruptionError, ConfigError) as refused:
        assert str(path) in str(refused), f"{refused} does not name {path}"
        assert any(remedy in str(refused) for remedy in REMEDIES), f"{refused} says nothing to do"
        assert not is_segment(path), "one damaged segment is no reason not to serve the others"
        return "refused"
    assert described == expected[0]
    if logs == expected[1]:
        return "same"
    assert is_segment(path), f"{path} changed what is served, and nothing was said"
    for place, log in logs.items():
        if log != expected[1][place]:
            _check_damaged(path, log, expected[1][place])
    return "damaged"


def _check_damaged(path, log, expected):
    assert any(damage.path == path for damage in log["damage"]), f"{path} is not named"
    assert log["offsets"][:2] == expected["offsets"][:2]
    assert set(log["records"]) <= set(expected["records"])
    lost = {record[0] for record in expected["records"]} - {record[0] for record in log["records"]}
    named = {n for damage in log["damage"] for n in range(damage.first_offset, damage.next_offset)}
    assert lost <= named


@pytest.fixture(scope="module")
def filled():
    logging.disable()  # thousands of damaged files have much to tell
    disk = populated()
    yield disk, contents(disk.after_power_cut()), sorted(files_of(disk))
    logging.disable(logging.NOTSET)


def flips(path, data, *, every_bit):
    """Positions and bits: all of them, or one bit of each byte, and of the records in segments only some."""
    starts = [position for position, _ in batches_in(data)] if is_segment(path) else []
    for position in range(len(data)):
        in_batch = position - max((start for start in starts if start <= position), default=position)
        if every_bit:
            yield from ((position, 1 << bit) for bit in range(8))
        elif position % _step(path, in_batch) == 0:
            yield position, 1 << (position % 8)


def _step(path, in_batch):
    if path.suffix == ".clog" and in_batch < 8:
        return 1  # base offsets, which no CRC of a batch covers
    if is_segment(path):
        return 5 if in_batch < HEADER_BYTES else 101
    return 3 if path.suffix == ".index" else 1


def outcomes_of_flips(filled, *, every_bit):
    disk, expected, files = filled
    outcomes = {}
    for path in files:
        data = disk.read_file(path)
        for position, mask in flips(path, data, every_bit=every_bit):
            flipped = disk.after_power_cut()
            flipped.flip(path, position, mask)
            try:
                outcomes.setdefault(path.name, set()).add(check(flipped, path, expected))
            except BaseException as error:
                error.add_note(f"bit {mask} of byte {position} of {path}: {data[position : position + 20]!r}")
                raise
    return outcomes


def test_the_directory_has_one_of_every_file(filled):
    names = {path.name for path in filled[2]}
    there = {
        "headrace.json",
        "lock",
        "producer-ids",
        "quotas.json",
        "access.json",
        "topic.json",
        "checkpoint",
    }
    there |= {"producers", "producers-0", "log-start", "clean-end", "damage"}
    assert there <= names
    assert {".log", ".clog", ".index"} <= {path.suffix for path in filled[2]}


def test_a_flipped_bit_changes_nothing_or_is_refused_by_name(filled):
    outcomes = outcomes_of_flips(filled, every_bit=False)
    for name in ("headrace.json", "topic.json", "producer-ids", "quotas.json", "access.json", "log-start"):
        assert outcomes[name] <= {"refused", "same"}
        assert "refused" in outcomes[name]
    for name in ("checkpoint", "producers", "producers-0", "clean-end", "damage"):
        assert outcomes[name] == {"same"}


@pytest.mark.slow
def test_every_single_bit_changes_nothing_or_is_refused_by_name(filled):
    assert outcomes_of_flips(filled, every_bit=True)


def test_a_file_that_is_cut_short_changes_nothing_or_is_refused_by_name(filled):
    disk, expected, files = filled
    for path in files:
        data = disk.read_file(path)
        ends = [position for position, _ in batches_in(data)] if is_segment(path) else []
        for size in {0, len(data) // 2, max(len(data) - 1, 0), *ends}:
            cut = disk.after_power_cut()
            cut.cut(path, size)
            check(cut, path, expected)


EARLIER = {
    "headrace.json": b'{\n "format_version": 1,\n "cluster_id": "c"\n}\n',
    "producer-ids": b'{\n "next": 17\n}\n',
    "quotas.json": b'{\n "version": 1,\n "quotas": [\n  {\n   "client_id": "b",\n'
    b'   "producer_byte_rate": 3.0\n  }\n ]\n}\n',
}


def test_files_of_the_earlier_format_open_and_get_a_checksum():
    disk = populated()
    for name, data in EARLIER.items():
        disk.replace_file(DATA / name, data)
    topic_file = next(path for path in files_of(disk) if path.name == "topic.json")
    fields = b'{\n "name": "old",\n "partitions": 1,\n "overrides": {}\n}\n'
    disk.replace_file(topic_file, fields)
    described, _ = contents(disk)
    assert (described["cluster"], described["producer ids"]) == ("c", 17)
    assert described["quotas"] == {"b": {PRODUCER: 3.0}}
    assert "old" in described["topics"]
    for path in (topic_file, *(DATA / name for name in EARLIER)):
        assert b'"crc32c"' in disk.read_file(path)


@pytest.mark.parametrize(
    "data",
    [
        encode_fields({"next": 1}).replace(b"crc32c", b"crc32b"),
        encode_fields({"next": 1}).upper(),
        encode_fields({"next": 1}).replace(b"1", b"2", 1),
        encode_fields({"next": "1"}),
        b'{"next": 1, "more": 2}',
        b"[]",
        b"\xff",
        b'{"next": 1e400}',
    ],
)
def test_what_was_never_written_is_refused(data):
    disk = populated()
    disk.replace_file(DATA / "producer-ids", data)
    with pytest.raises(CorruptionError, match=r"producer-ids.*restore it from a copy"):
        DataDirectory(DATA, disk=disk)


def test_a_missing_topic_file_or_partition_is_named():
    disk = populated()
    topic_file = next(path for path in files_of(disk) if path.name == "topic.json")
    missing = disk.after_power_cut()
    missing.unlink(topic_file)
    with pytest.raises(CorruptionError, match=r"topic.json.*it is missing; restore it .* or move"):
        DataDirectory(DATA, disk=missing)
    disk.remove_tree(topic_file.parent / "0")
    with pytest.raises(CorruptionError, match=r"/0 .*missing; restore it"):
        DataDirectory(DATA, disk=disk)
