"""What a statement in the binary log means for captured tables: told from its first words. Pure.

Rows come as rows; what comes as a statement is DDL, or was written by a session that logs
statements. No statement is parsed further than the name that TRUNCATE has: columns are looked up
in the catalog instead.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

__all__ = ["Meaning", "Statement", "mentions", "read_statement"]

_COMMENT = re.compile(r"\s*(/\*(?!M?!).*?\*/|#[^\n]*\n|--\s[^\n]*\n)\s*", re.DOTALL)
_NAME = r"(?:`((?:[^`]|``)+)`|([^\s`.;(]+))"
_TRUNCATE = re.compile(
    rf"TRUNCATE\s+(?:TABLE\s+)?{_NAME}(?:\s*\.\s*{_NAME})?\s*(?:;|/\*|$|WAIT|NOWAIT)", re.IGNORECASE
)
_TEMPORARY = re.compile(r"(CREATE|DROP)\s+(OR\s+REPLACE\s+)?TEMPORARY\s", re.IGNORECASE)
_REPLACES = re.compile(
    r"(CREATE\s+(OR\s+REPLACE\s+)?TABLE|DROP\s+TABLES?|RENAME\s+TABLES?|ALTER\s.*\b(PARTITION|RENAME|TABLESPACE)\b)\b",
    re.IGNORECASE | re.DOTALL,
)
_CREATED = re.compile(
    rf"CREATE\s+(OR\s+REPLACE\s+)?TABLE\s+(IF\s+NOT\s+EXISTS\s+)?{_NAME}(\s*\.\s*{_NAME})?", re.IGNORECASE
)
_CHANGES_TABLES = re.compile(
    r"(CREATE|DROP|ALTER|RENAME)\s+(OR\s+REPLACE\s+|ONLINE\s+|OFFLINE\s+|IGNORE\s+)*(TABLES?|DATABASE|SCHEMA)\b",
    re.IGNORECASE,
)
_DML = ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL")


class Meaning(Enum):
    """What is to be done about a statement."""

    NOTHING = auto()
    BEGIN = auto()
    COMMIT = auto()
    ROLLBACK = auto()
    ROLLBACK_PARTLY = auto()
    XA_START = auto()
    XA_END = auto()
    XA_COMMIT = auto()
    XA_ROLLBACK = auto()
    TRUNCATE = auto()
    DML = auto()
    REPLACES_ROWS = auto()  # without telling which: tables that are mentioned have to be read again
    CHANGES_TABLES = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Statement:
    """`table` is what is truncated, `schema.name`; `xid` names a transaction of XA."""

    meaning: Meaning
    text: str
    table: str = ""
    xid: str = ""


_FIXED = {
    "BEGIN": Meaning.BEGIN, "START TRANSACTION": Meaning.BEGIN, "COMMIT": Meaning.COMMIT,
    "ROLLBACK": Meaning.ROLLBACK,
}  # fmt: skip
_XA = {
    "START": Meaning.XA_START, "BEGIN": Meaning.XA_START, "END": Meaning.XA_END,
    "COMMIT": Meaning.XA_COMMIT, "ROLLBACK": Meaning.XA_ROLLBACK,
}  # fmt: skip


def read_statement(schema: str, text: str) -> Statement:
    """What a statement that was executed in a schema means."""
    while (comment := _COMMENT.match(text)) and comment.end():
        text = text[comment.end() :]
    text = text.strip()
    upper = text[:64].upper().rstrip("; ")
    if upper in _FIXED and len(text) <= 64:
        return Statement(_FIXED[upper], text)
    words = upper.split(None, 2)
    verb = words[0] if words else ""
    match verb:
        case "ROLLBACK":
            return Statement(Meaning.ROLLBACK_PARTLY, text)
        case "SAVEPOINT" | "RELEASE":
            return Statement(Meaning.NOTHING, text)
        case "XA" if len(words) > 1 and words[1] in _XA:
            rest = text.split(None, 2)[2:]
            return Statement(_XA[words[1]], text, xid=_xid(rest[0] if rest else ""))
        case "TRUNCATE":
            named = _TRUNCATE.match(text)
            table = _table(schema, named) if named else ""
            return Statement(Meaning.TRUNCATE if table else Meaning.REPLACES_ROWS, text, table)
    if verb in _DML:
        return Statement(Meaning.DML, text)
    if _TEMPORARY.match(text):
        return Statement(Meaning.NOTHING, text)
    if created := _CREATED.match(text):
        return Statement(Meaning.REPLACES_ROWS, created[0])
    if _REPLACES.match(text):
        return Statement(Meaning.REPLACES_ROWS, text)
    return Statement(Meaning.CHANGES_TABLES if _CHANGES_TABLES.match(text) else Meaning.OTHER, text)


def _xid(text: str) -> str:
    return re.sub(r"\s+(ONE\s+PHASE|JOIN|RESUME|SUSPEND.*)\s*;?$", "", text, flags=re.IGNORECASE).strip()


def _table(schema: str, named: re.Match[str]) -> str:
    first = (named[1] or "").replace("``", "`") or named[2]
    second = (named[3] or "").replace("``", "`") or named[4]
    return f"{first}.{second}" if second else f"{schema}.{first}"


def mentions(text: str, names: Iterable[str]) -> list[str]:
    """Those of the tables, named `schema.name`, whose names stand in the text as words."""
    found = []
    for each in names:
        name = re.escape(each.partition(".")[2].replace("`", "``"))
        if re.search(rf"(?<![\w$]){name}(?![\w$])", text, re.IGNORECASE):
            found.append(each)
    return found
