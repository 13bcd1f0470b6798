"""Bytes from a log as text for people and for machines. Pure.

What a record holds is somebody else's data and may be hostile: text for people
never carries a control character, so that no record can move the cursor,
recolour the screen or pretend to be another line. Text for machines keeps every
byte: as UTF-8 where it is, as hex where it is not.
"""

import json
import re
import unicodedata
from typing import NoReturn

__all__ = ["decode_payload", "encode_payload", "escape", "indent_json", "render_payload"]

# Joiners that scripts and emoji need; every other invisible format character is shown as its code.
HARMLESS_FORMAT = "\u200c\u200d"
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
OPENING, CLOSING = ("{", "["), ("}", "]")
JSON_DEPTH_SHOWN = 40


def escape(text: str, *, keep: str = "") -> str:
    """The text with control and invisible format characters as `\\x1b` or `\\u202e`; `keep` stays."""
    if text.isprintable():
        return text
    return "".join(c if c in keep or not _hidden(c) else _code(c) for c in text)


def _hidden(character: str) -> bool:
    if character in HARMLESS_FORMAT:
        return False
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _code(character: str) -> str:
    point = ord(character)
    if point > 0xFFFF:
        return f"\\U{point:08x}"
    return f"\\u{point:04x}" if point > 0xFF else f"\\x{point:02x}"


def render_payload(payload: bytes) -> str:
    """A key or value for people, escaped: JSON indented, other text as it is, the rest as hex."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return payload.hex(" ", 4)
    return escape(indent_json(text) or text, keep="\n\t")


def indent_json(text: str) -> str | None:
    """A JSON object or array indented by two; None when the text is neither.

    Works on the text's own tokens, so that long numbers, repeated keys and
    escapes are shown as they were written.
    """
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    tokens = TOKEN.findall(text)
    return None if _depth(tokens) > JSON_DEPTH_SHOWN else _layout(tokens)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _depth(tokens: list[str]) -> int:
    depth = deepest = 0
    for each in tokens:
        depth += (each in OPENING) - (each in CLOSING)
        deepest = max(deepest, depth)
    return deepest


def _layout(tokens: list[str]) -> str:
    pieces: list[str] = []
    depth, before = 0, ""
    for each in tokens:
        depth -= each in CLOSING
        breaks = before in OPENING or before == "," or each in CLOSING
        if breaks and before and not (before in OPENING and each in CLOSING):
            pieces.append("\n" + "  " * depth)
        depth += each in OPENING
        pieces.append(": " if each == ":" else each)
        before = each
    return "".join(pieces)


def encode_payload(payload: bytes | None) -> tuple[str | None, str | None]:
    """A key or value for machines: (text, "text") or (hex, "hex"); (None, None) for a null."""
    if payload is None:
        return None, None
    try:
        return payload.decode(), "text"
    except UnicodeDecodeError:
        return payload.hex(), "hex"


def decode_payload(text: str, encoding: str) -> bytes:
    """The bytes that `encode_payload` was given; raises ValueError."""
    if encoding == "hex":
        return bytes.fromhex(text)
    if encoding != "text":
        raise ValueError(f"encoding {encoding!r} is neither text nor hex")
    return text.encode()
