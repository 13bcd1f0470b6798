import stat

import pytest

from headrace.console.security import NOBODY, Role
from headrace.console.users import UsersFile, add_token, read_users, remove_token
from headrace.errors import ConfigError, RequestError


class Clock:
    """Moved by hand."""

    def __init__(self):
        self.ms = 0

    def now_ms(self):
        return self.ms

    def monotonic_ms(self):
        return self.ms


def test_a_token_is_known_by_its_hash_alone(tmp_path):
    path = tmp_path / "users.json"
    token = add_token(path, "ada", "writer")
    assert token not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = UsersFile(path).principal(token, by_token=True)
    assert (found.name, found.role, found.by_token) == ("ada", Role.WRITER, True)


def test_whatever_else_is_nobody(tmp_path):
    path = tmp_path / "users.json"
    token = add_token(path, "ada", "admin")
    users = UsersFile(path)
    for wrong in ("", token[:-1], token + "x", token.upper(), "\ud800"):
        assert users.principal(wrong, by_token=True) is NOBODY


def test_a_removed_token_is_refused_within_a_second(tmp_path):
    path, clock = tmp_path / "users.json", Clock()
    token = add_token(path, "ada", "admin")
    users = UsersFile(path, clock)
    remove_token(path, "ada")
    assert users.principal(token, by_token=True) is not NOBODY
    clock.ms += 1_000
    assert users.principal(token, by_token=True) is NOBODY


def test_a_name_has_one_token(tmp_path):
    path = tmp_path / "users.json"
    add_token(path, "ada", "reader")
    with pytest.raises(RequestError, match="already"):
        add_token(path, "ada", "admin")
    assert [each.role for each in read_users(path)] == ["reader"]


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 64, "é"])
def test_a_name_is_plain(tmp_path, name):
    with pytest.raises(RequestError):
        add_token(tmp_path / "users.json", name, "reader")


def test_removing_nobody_says_who_there_is(tmp_path):
    add_token(tmp_path / "users.json", "ada", "reader")
    with pytest.raises(RequestError, match="ada"):
        remove_token(tmp_path / "users.json", "eve")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "tokens": [{"name": 1}]}'])
def test_a_file_of_another_kind_is_refused(tmp_path, text):
    path = tmp_path / "users.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="token add"):
        read_users(path)
