"""MySQL's types of columns as the binary log numbers them. Pure."""

from collections.abc import Mapping
from enum import IntEnum

__all__ = ["BLOBS", "INTEGER_BYTES", "STRINGS", "TypeCode", "type_code"]


class TypeCode(IntEnum):
    """The types; 140, 141 and 242 are MariaDB's compressed ones and MySQL's vectors."""

    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    OLD_TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    OLD_TIME = 11
    OLD_DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP = 17
    DATETIME = 18
    TIME = 19
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    DECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


BLOBS = (TypeCode.TINY_BLOB, TypeCode.MEDIUM_BLOB, TypeCode.LONG_BLOB, TypeCode.BLOB)
STRINGS = (TypeCode.VARCHAR, TypeCode.VAR_STRING, TypeCode.STRING)
INTEGER_BYTES: Mapping[int, int] = {
    TypeCode.TINY: 1,
    TypeCode.SHORT: 2,
    TypeCode.INT24: 3,
    TypeCode.LONG: 4,
    TypeCode.LONGLONG: 8,
}


def type_code(code: int, meta: int) -> tuple[int, int]:
    """The type that a CHAR's parameters hide (it may be an ENUM or a SET), and its length."""
    if code != TypeCode.STRING:
        return code, meta
    first, second = meta & 0xFF, meta >> 8
    if first & 0x30 != 0x30:
        return first | 0x30, second | (first & 0x30 ^ 0x30) << 4
    return first, second
