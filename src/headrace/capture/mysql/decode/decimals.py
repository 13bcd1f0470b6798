"""MySQL's binary decimals: nine digits in four bytes, big-endian, the first bit for the sign. Pure."""

__all__ = ["decimal_bytes", "read_decimal"]

_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # for so many digits that are left over
_DIGITS = 9


def decimal_bytes(precision: int, scale: int) -> int:
    """How many bytes a value has."""
    whole = precision - scale
    if whole < 0:
        raise ValueError(f"no decimal: {precision} digits, {scale} of them behind the point")
    return whole // _DIGITS * 4 + _BYTES[whole % _DIGITS] + scale // _DIGITS * 4 + _BYTES[scale % _DIGITS]


def read_decimal(data: bytes, at: int, precision: int, scale: int) -> tuple[str, int]:
    """The value at a position as text, all of its digits behind the point, and where it ends."""
    end = at + decimal_bytes(precision, scale)
    if end > len(data):
        raise IndexError("a decimal ends too early")
    raw = bytearray(data[at:end])
    is_negative = not raw[0] & 0x80
    raw[0] ^= 0x80
    if is_negative:
        raw = bytearray(each ^ 0xFF for each in raw)
    whole, fraction, place = "", "", 0
    for digits in _groups(precision - scale, leading=True):
        size = _BYTES[digits]
        whole += f"{int.from_bytes(raw[place : place + size], 'big'):0{digits}d}"
        place += size
    for digits in _groups(scale, leading=False):
        size = _BYTES[digits]
        fraction += f"{int.from_bytes(raw[place : place + size], 'big'):0{digits}d}"
        place += size
    text = (whole.lstrip("0") or "0") + (f".{fraction}" if fraction else "")
    return ("-" + text if is_negative else text), end


def _groups(digits: int, *, leading: bool) -> list[int]:
    full, rest = [_DIGITS] * (digits // _DIGITS), [digits % _DIGITS] if digits % _DIGITS else []
    return [*rest, *full] if leading else [*full, *rest]
