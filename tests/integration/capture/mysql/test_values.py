"""Values of every type: the same JSON from a query and from the binary log, and the documented one."""

from typing import Any

import pytest
from tests.integration.capture.mysql.databases import Follower, followed
from tests.integration.capture.postgres.following import Folded

from headrace.capture.change import EncodedChanges
from headrace.capture.envelope import Envelope

pytestmark = pytest.mark.xdist_group("mysql")


def values(folded: Folded, table: str) -> list[dict]:
    return sorted(folded.tables.get(table, {}).values(), key=lambda row: str(row))


ZOO = {
    "t1": ("tinyint", "-128", -128), "t1u": ("tinyint unsigned", "255", 255), "bo": ("boolean", "true", 1),
    "s": ("smallint", "-32768", -32768), "su": ("smallint unsigned", "65535", 65535),
    "m": ("mediumint", "-8388608", -8388608), "mu": ("mediumint unsigned", "16777215", 16777215),
    "i": ("int", "-5", -5), "iu": ("int unsigned", "4294967295", 4294967295),
    "iz": ("int zerofill", "42", 42),
    "b": ("bigint", "-9223372036854775808", -9223372036854775808),
    "bu": ("bigint unsigned", "18446744073709551615", 18446744073709551615),
    "f": ("float", "0.1", 0.1), "f2": ("float", "16777216", 16777216.0), "d": ("double", "1e100", 1e100),
    "dn": ("double", "-0.30000000000000004", -0.30000000000000004),
    "n": ("decimal(12,2)", "-1234567.5", "-1234567.50"), "n0": ("decimal(30)", "1", "1"),
    "n65": ("decimal(65,30)", "1234567890.123456789", "1234567890.123456789000000000000000000000"),
    "nz": ("decimal(8,3) zerofill", "0.5", "0.500"),
    "b1": ("bit(1)", "b'1'", True), "b12": ("bit(12)", "b'101010101010'", "qgo="),
    "da": ("date", "'2026-01-02'", 20455),
    "da0": ("date", "'0000-00-00'", None), "dap": ("date", "'2026-00-02'", None),
    "old": ("date", "'1000-01-01'", -354285),
    "ti": ("time", "'-838:59:59'", -3020399000000), "ti2": ("time(2)", "'-00:00:00.25'", -250000),
    "ti3": ("time(3)", "'12:34:56.789'", 45296789000), "ti6": ("time(6)", "'-12:34:56.000001'", -45296000001),
    "dt": ("datetime", "'2026-01-02 03:04:05'", 1767323045000), "dt0": ("datetime", "'0000-00-00'", None),
    "dt3": ("datetime(3)", "'1960-01-02 03:04:05.678'", -315521754322),
    "dt6": ("datetime(6)", "'9999-12-31 23:59:59.999999'", 253402300799999999),
    "ts": ("timestamp NULL", "'2026-01-02 03:04:05'", "2026-01-02T03:04:05Z"),
    "ts3": ("timestamp(3) NULL", "'2026-01-02 03:04:05.120'", "2026-01-02T03:04:05.120Z"),
    "ts6": ("timestamp(6) NULL", "'2038-01-19 03:14:07.000001'", "2038-01-19T03:14:07.000001Z"),
    "ts0": ("timestamp NULL", "'0000-00-00 00:00:00'", None),
    "y": ("year", "2026", 2026), "y0": ("year", "0", 0),
    "c": ("char(5)", "'é '", "é"), "c9": ("char(255)", "'ü'", "ü"),
    "vc": ("varchar(300)", "concat('tab\\t\"q\" ', char(92))", 'tab\t"q" \\'),
    "l1": ("varchar(9) CHARACTER SET latin1", "'naïve €'", "naïve €"),
    "u16": ("varchar(9) CHARACTER SET utf16", "'漢😀'", "漢😀"),
    "cp": ("text CHARACTER SET cp1251", "'Привет'", "Привет"),
    "te": ("text CHARACTER SET utf8mb4", "'漢字 😀'", "漢字 😀"),
    "mt": ("mediumtext", "repeat('x', 70000)", "x" * 70000),
    "bi": ("binary(4)", "0x00ff00", "AP8AAA=="), "vb": ("varbinary(9)", "0x00ff", "AP8="),
    "bl": ("blob", "0x00ff00", "AP8A"), "e": ("enum('a','b''c','d,e')", "'b''c'", "b'c"),
    "el": ("enum('é','x') CHARACTER SET latin1", "'é'", "é"), "e0": ("enum('a')", "''", ""),
    "st": ("set('a','b','ü')", "'ü,a'", "a,ü"), "st0": ("set('a')", "''", ""),
    "po": ("point", "ST_GeomFromText('POINT(1.5 -2)')",
           {"x": 1.5, "y": -2.0, "wkb": "AQEAAAAAAAAAAAD4PwAAAAAAAADA", "srid": None}),
    "ge": ("geometry", "ST_GeomFromText('LINESTRING(0 0,1 1)')",
           {"wkb": "AQIAAAACAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAPA/AAAAAAAA8D8=", "srid": None}),
    "nu": ("int", "NULL", None), "ny": ("int", "-6", -6),
    "iu2": ("int unsigned", "4000000000", 4000000000), "i2": ("int", "-4", -4),
}  # fmt: skip
OF_MARIADB = {
    "js": ("json", "'{\"b\": [1, 2.50]}'", '{"b": [1, 2.50]}'),
    "uu": ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "u1": ("uuid", "'c82fbb30-c4f5-11f0-8de9-0242ac120002'", "c82fbb30-c4f5-11f0-8de9-0242ac120002"),
    "u7": ("uuid", "'01933b2c-5ad4-7bd6-8c22-0a2b3c4d5e6f'", "01933b2c-5ad4-7bd6-8c22-0a2b3c4d5e6f"),
    "u0": ("uuid", "'00000000-0000-0000-0000-000000000000'", "00000000-0000-0000-0000-000000000000"),
    "in6": ("inet6", "'2001:db8::ff00:42:8329'", "2001:db8::ff00:42:8329"),
    "in4": ("inet4", "'10.0.0.255'", "10.0.0.255"),
    "vz": ("varchar(9000) COMPRESSED", "repeat('yz', 3000)", "yz" * 3000),
    "bz": ("blob COMPRESSED", "repeat('a', 999)", "YWFh" * 333), "vs": ("varchar(90) COMPRESSED", "'é'", "é"),
}  # fmt: skip
JSON_VALUES = (
    "{}", "[]", "null", "true", '"a\\u0001\\n\\"\\\\ü"', "1", "-1", "65535", "4294967296",
    "18446744073709551615",
    "-9223372036854775808", "0.1", "1.0", "100000.0", "1e20", "1.5e-7", "1e-15", "1e-16",
    "123456789012345.0",
    "1234567890123456.0", "12345678901234567890123", "-0.0", "0.0", "1.7976931348623157e308",
    '{"b": [1, {"c": null}], "a": {"x": [[]]}, "": 1}',
)  # fmt: skip
OF_MYSQL = {
    "vec": ("vector(3)", "string_to_vector('[1,0.1,-2.5]')", [1, 0.1, -2.5]),
    "jd": ("json", "json_array(cast('2026-01-02' as date), cast('-03:04:05.5' as time(1)), "
           "cast('2026-01-02 03:04:05' as datetime), cast(1.50 as decimal(9,2)), "
           "cast(0xff00 as binary))", None),
    "jl": ("json", "json_object('k', repeat('x', 70000), 'n', 7, 'a', json_array(1, 70000, true))", None),
}  # fmt: skip
OF_MYSQL |= {f"j{n}": ("json", f"'{each}'".replace("\\", "\\\\"), None) for n, each in enumerate(JSON_VALUES)}


def test_every_type_has_the_same_json_from_a_query_and_from_the_log(database):
    zoo = ZOO | (OF_MARIADB if database.is_mariadb else OF_MYSQL)
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in zoo.items())
    inserted = ", ".join(value for _, value, _ in zoo.values())
    database.run(
        f"CREATE TABLE zoo (id int PRIMARY KEY, {columns})", f"INSERT INTO zoo VALUES (1, {inserted})"
    )
    folded = Folded()
    followed(database, folded)
    database.run(f"INSERT INTO zoo VALUES (2, {inserted})")
    followed(database, folded)
    read, logged = (dict(each) for each in values(folded, f"{database.name}.zoo"))
    assert (read.pop("id"), logged.pop("id")) == (1, 2)
    assert {name: (read[name], logged[name]) for name in zoo if read[name] != logged[name]} == {}
    known = {name: value for name, (_, _, value) in zoo.items() if name[:1] != "j" or database.is_mariadb}
    assert {name: (logged[name], value) for name, value in known.items() if logged[name] != value} == {}


ONLY_PYTHON_KNOWS = {"u16", "po", "ge"}
OF_ANY_ROW = {name: each for name, each in ZOO.items() if name not in ONLY_PYTHON_KNOWS} | {
    "sj": ("varchar(9) CHARACTER SET sjis", "'plain'", "plain"),
    "d": ("double", "1.5e-7", 1.5e-7),
}


class Watching(Follower):
    """Notes how many rows of its blocks the kernel has encoded, and how many were left to Python."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.encoded = self.left = 0

    def _agreed(self, block):
        made = Envelope(connector="mariadb", name="shop", database="shop", version="1")
        for each in block.encoded(made, 0):
            is_encoded = isinstance(each, EncodedChanges)
            self.encoded += each.count if is_encoded else 0
            self.left += not is_encoded
        return super()._agreed(block)


def test_the_usual_types_are_encoded_in_c(database):
    """Letters of several bytes that are not UTF-8, large doubles and new keys are left to Python."""
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in OF_ANY_ROW.items())
    inserted = ", ".join(value for _, value, _ in OF_ANY_ROW.values())
    database.run(f"CREATE TABLE usual (id int PRIMARY KEY, {columns})")
    source, folded = database.source(), Folded()
    try:
        follower = Watching(source, folded)
        follower.settle(database.end())
        database.run(
            f"INSERT INTO usual VALUES (1, {inserted})",
            f"INSERT INTO usual VALUES (2, {inserted}), (3, {inserted})",
            "UPDATE usual SET i = i + 1",
            "DELETE FROM usual WHERE id = 3",
        )
        follower.settle(database.end())
        assert (follower.encoded, follower.left) == (7, 0)
        database.run(
            "UPDATE usual SET sj = '漢字' WHERE id = 1",
            "UPDATE usual SET d = 1e100, id = id + 9 WHERE id = 2",
        )
        follower.settle(database.end())
        assert (follower.encoded, follower.left) == (7, 3), "a new key is two changes"
    finally:
        source.close()
    row = next(each for each in values(folded, f"{database.name}.usual") if each["id"] == 11)
    expected = {name: value for name, (_, _, value) in OF_ANY_ROW.items()} | {"d": 1e100, "i": -4}
    assert {name: row[name] for name in expected if row[name] != expected[name]} == {}
