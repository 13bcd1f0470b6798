"""MySQL's character sets, and what Python calls them. Pure."""

from collections.abc import Callable

__all__ = ["BINARY", "decoder", "extends_ascii", "is_utf8", "upper_letters"]

BINARY = "binary"
_CODECS = {
    "utf8mb4": "utf-8", "utf8mb3": "utf-8", "utf8": "utf-8", "ascii": "ascii", "ucs2": "utf-16-be",
    "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be", "latin2": "iso8859-2",
    "latin5": "iso8859-9", "latin7": "iso8859-13", "greek": "iso8859-7", "hebrew": "iso8859-8",
    "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257", "cp850": "cp850",
    "cp852": "cp852", "cp866": "cp866", "koi8r": "koi8-r", "koi8u": "koi8-u", "big5": "cp950",
    "gb2312": "gb2312", "gbk": "gbk", "gb18030": "gb18030", "sjis": "cp932", "cp932": "cp932",
    "ujis": "euc-jp", "eucjpms": "euc-jp", "euckr": "cp949", "tis620": "tis-620", "macce": "mac-latin2",
    "macroman": "mac-roman",
}  # fmt: skip
_LATIN1 = [bytes([each]).decode("cp1252", "replace") for each in range(256)]
_LATIN1 = [chr(number) if each == "\ufffd" else each for number, each in enumerate(_LATIN1)]


def decoder(charset: str) -> Callable[[bytes], str] | None:
    """What makes text of bytes in a character set; None for one that is not known."""
    if charset == "latin1":
        return _latin1
    codec = _CODECS.get(charset)
    return None if codec is None else lambda data: data.decode(codec, "replace")


def _latin1(data: bytes) -> str:
    """Windows' code page, with the five letters that it lacks as they are."""
    if data.isascii():
        return data.decode("ascii")
    return "".join([_LATIN1[each] for each in data])


def is_utf8(charset: str) -> bool:
    """Whether its bytes are those of UTF-8."""
    return _CODECS.get(charset) == "utf-8"


def extends_ascii(charset: str) -> bool:
    """Whether bytes below 128 are letters of ASCII in it, whatever the others are."""
    decode, ascii_bytes = decoder(charset), bytes(range(128))
    return decode is not None and decode(ascii_bytes) == ascii_bytes.decode("ascii")


def upper_letters(charset: str) -> str:
    """The letters of its bytes from 128 on; none if letters may have several bytes."""
    decode = decoder(charset)
    if decode is None or is_utf8(charset) or not extends_ascii(charset):
        return ""
    letters = decode(bytes(range(128, 256)))
    return letters if len(letters) == 128 else ""
