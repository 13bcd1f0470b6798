"""Random values of a column, as they stand in a statement: PostgreSQL's and MySQL's types that vary most."""

import random
import re
from datetime import datetime, timedelta

LETTERS = "aZ09 _'\"\\/,{}[]:;%\t\nüñß€漢字😀\u00a0\u2028"
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32, "bigint": 64}


def drawn(chance: random.Random, kind: str, *, mysql: bool) -> str | None:
    """A value of this type; None for a type of which the one in the zoo serves."""
    base = re.split(r"[( ]", kind)[0]
    if base in _BITS and not kind.endswith("]") and "zerofill" not in kind:
        bits, unsigned = _BITS[base], "unsigned" in kind
        low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return str(chance.choice([low, high, 0, chance.randint(low, high), chance.randint(0, 100)]))
    if base in ("real", "float", "double") and kind != "float unsigned":
        return repr(chance.choice([0.0, 1.5, -0.1, chance.uniform(-1e6, 1e6), chance.uniform(-1, 1) * 1e-20]))
    if found := re.fullmatch(r"(?:numeric|decimal)\((\d+),(\d+)\)", kind):
        digits, scale = map(int, found.groups())
        number = str(chance.randrange(10 ** chance.randint(1, digits))).zfill(scale + 1)
        return chance.choice(["", "-"]) + number[: len(number) - scale] + "." + number[len(number) - scale :]
    if kind == "numeric":
        return f"{chance.randint(-(10**20), 10**20)}.{chance.randrange(10**9)}"
    if kind in ("text", "varchar(9)", "char(5)", "text CHARACTER SET utf8mb4", "varchar(300)"):
        return _text(chance, 5 if kind[-2:] in ("9)", "5)") else 40, mysql=mysql)
    return _moment(chance, kind, mysql=mysql) or _other(chance, kind, mysql=mysql)


def _text(chance: random.Random, longest: int, *, mysql: bool) -> str:
    text = "".join(chance.choice(LETTERS) for _ in range(chance.randint(0, longest)))
    text = text.rstrip(" ")  # a CHAR of MySQL ends there
    if mysql:
        return f"_utf8mb4 0x{text.encode().hex()}" if text else "''"
    return "'" + text.replace("'", "''") + "'"


def _moment(chance: random.Random, kind: str, *, mysql: bool) -> str | None:
    first = datetime(1971 if kind.startswith("timestamp") and mysql else 1000, 1, 1)
    last = datetime(2037 if mysql and kind.startswith("timestamp") else 9998, 1, 1)
    at = first + timedelta(microseconds=chance.randrange(int((last - first).total_seconds() * 1e6)))
    at = at.replace(microsecond=chance.choice([0, 1, 999_999, at.microsecond]))
    base = re.split(r"[( ]", kind)[0]
    if base == "date":
        return f"'{at:%Y-%m-%d}'"
    if base in ("timestamp", "datetime"):
        return f"'{at.isoformat(sep=' ')}'"
    if base == "timestamptz":
        return f"'{at.isoformat(sep=' ')}+{chance.randrange(14):02}:30'"
    if base == "time":
        if mysql:
            sign, hours = chance.choice(["", "-"]), chance.randrange(838)
            return f"'{sign}{hours}:{at:%M:%S.%f}'"
        return f"'{at:%H:%M:%S.%f}'"
    return None


def _other(chance: random.Random, kind: str, *, mysql: bool) -> str | None:
    octets = chance.randbytes(chance.randint(1, 4))
    if kind == "bytea":
        return f"'\\x{octets.hex()}'"
    if kind in ("blob", "varbinary(9)", "binary(4)"):
        return f"0x{octets.hex()}"
    if kind == "uuid":
        return f"'{chance.randbytes(16).hex()}'"
    if kind == "boolean":
        return chance.choice(["true", "false"])
    if kind == "int[]":
        return "'{" + ",".join(chance.choice(["NULL", str(chance.randint(-9, 9))]) for _ in range(3)) + "}'"
    if kind == "text[]" and not mysql:
        texts = ", ".join(_text(chance, 9, mysql=False) for _ in range(chance.randint(1, 4)))
        return f"array[{texts}]"
    return None
