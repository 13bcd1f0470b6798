"""The address of an embedded log: kept from start to start, checked, and that of earlier versions taken."""

import pytest

from headrace.app.status.log_address import keep_address, last_address
from headrace.errors import ConfigError


def test_an_address_is_kept(tmp_path):
    assert last_address(tmp_path / "log") is None
    keep_address(tmp_path / "log", "127.0.0.1:40123")
    assert last_address(tmp_path / "log") == "127.0.0.1:40123"


@pytest.mark.parametrize("kept", ["127.0.0.1:40123", "localhost:9092\n", "[::1]:9092"])
def test_that_of_earlier_versions_is_taken(tmp_path, kept):
    (tmp_path / "log.address").write_text(kept)
    assert last_address(tmp_path / "log") == kept.strip()


def test_every_flipped_bit_is_damage_that_is_named_with_what_to_do(tmp_path):
    keep_address(tmp_path / "log", "127.0.0.1:40123")
    path = tmp_path / "log.address"
    whole = path.read_bytes()
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(ConfigError, match=r"log\.address is damaged .*; remove it"):
            last_address(tmp_path / "log")
