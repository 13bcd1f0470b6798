"""What Spark noted in a checkpoint is taken as it was written, or refused by name."""

import json
import zlib

import pytest

from headrace.app.query.checkpoint.spark_checkpoint import last_commit, last_position
from headrace.errors import ConfigError

POSITION = {"topic": "orders", "next": {str(each): 1000 + each for each in range(60)}}


@pytest.fixture
def folder(tmp_path):
    """A checkpoint of three batches, of which the last is not done."""
    for name in ("offsets", "commits"):
        (tmp_path / "checkpoint" / name).mkdir(parents=True)
    for batch in range(3):
        data = f'v1\n{{"batchTimestampMs":{batch}}}\n{json.dumps(POSITION)}'.encode()
        assert len(data) > 512
        parts = [data[at : at + 512] for at in range(0, len(data), 512)]
        checks = b"crc\0" + (512).to_bytes(4, "big")
        checks += b"".join(zlib.crc32(each).to_bytes(4, "big") for each in parts)
        offsets = tmp_path / "checkpoint" / "offsets"
        (offsets / str(batch)).write_bytes(data)
        (offsets / f".{batch}.crc").write_bytes(checks)
        if batch < 2:
            (tmp_path / "checkpoint" / "commits" / str(batch)).write_text("v1\n{}")
    return tmp_path


def test_the_position_is_that_of_the_last_batch_that_is_done(folder, tmp_path):
    assert (last_commit(folder), last_position(folder)) == (1, POSITION)
    assert (last_commit(tmp_path / "none"), last_position(tmp_path / "none")) == (-1, None)


@pytest.mark.parametrize("name", ["1", ".1.crc"])
def test_a_flipped_bit_is_damage_that_is_named_with_what_to_do(folder, name):
    path = folder / "checkpoint" / "offsets" / name
    data = path.read_bytes()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << (position % 8)
        path.write_bytes(flipped)
        with pytest.raises(ConfigError, match=r"offsets/1 is damaged .*restore the folder .*--rebuild"):
            last_position(folder)


@pytest.mark.parametrize("data", [b"", b"v1\n{}\n[]", b"v1\n{}\n{", b"\xff"])
def test_without_checksums_it_must_be_what_spark_writes(folder, data):
    (folder / "checkpoint" / "offsets" / ".1.crc").unlink()
    assert last_position(folder) == POSITION
    (folder / "checkpoint" / "offsets" / "1").write_bytes(data)
    with pytest.raises(ConfigError, match=r"offsets/1 is damaged"):
        last_position(folder)
