"""Takes pictures of a running console: `python tools/screenshots.py http://127.0.0.1:8080 docs/pictures`.

Needs chromium and the development requirements. Start something worth seeing first, such
as `headrace demo`. The pictures are small (128 colours), since they live in the repository.
"""

import shutil
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, sync_playwright

COLOURS = 128
SIZE = {"width": 1200, "height": 740}
PANELS = (
    ("console_overview", "", "light"),
    ("console_topic", "topics/shop.orders", "light"),
    ("console_pipeline", "pipeline", "dark"),
    ("console_view", "views/revenue_per_minute", "dark"),
)


def main() -> None:
    address, folder = sys.argv[1].rstrip("/"), Path(sys.argv[2])
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, route, scheme in PANELS:
            page = chromium.new_page(viewport=SIZE, color_scheme=scheme)
            page.goto(f"{address}/#/{route}")
            _settle(page)
            picture = folder / f"{name}.png"
            picture.write_bytes(fewer_colours(page.screenshot()))
            print(f"{picture}: {picture.stat().st_size:,} bytes")
            page.close()
        chromium.close()


def _settle(page: Page) -> None:
    """Waits until the panel is there and has moved for a while, so that sparklines have something to show."""
    page.get_by_role("heading", level=1).wait_for()
    page.locator(".loading").wait_for(state="detached")
    page.wait_for_timeout(15_000)
    if page.locator(".record-row").count():
        page.locator(".record-rows").press("ArrowDown")
        page.wait_for_timeout(500)


def fewer_colours(png: bytes) -> bytes:
    """The same picture with at most COLOURS colours: the commonest, and for others the nearest of these."""
    pixels = _pixels(png)
    packed = pixels.astype(np.uint32) @ np.array([65_536, 256, 1], np.uint32)
    found, places, counts = np.unique(packed, return_inverse=True, return_counts=True)
    kept = found[np.argsort(-counts)[:COLOURS]]
    palette = np.stack([kept >> 16, kept >> 8 & 255, kept & 255], axis=1).astype(np.int32)
    colours = np.stack([found >> 16, found >> 8 & 255, found & 255], axis=1).astype(np.int32)
    nearest = np.array([np.argmin(((palette - colour) ** 2).sum(axis=1)) for colour in colours], np.uint8)
    return _paletted(nearest[places].reshape(packed.shape), palette.astype(np.uint8))


def _pixels(png: bytes) -> np.ndarray:
    """Rows of red, green and blue, from a PNG as chromium writes it: 8 bits, no interlacing."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert depth == 8 and kind in (2, 6), "not the kind of PNG that chromium writes"
    size = 3 if kind == 2 else 4
    lines = np.frombuffer(zlib.decompress(_data(png)), np.uint8).reshape(height, 1 + width * size)
    before = np.zeros((width, size), np.int32)
    rows = []
    for line in lines:
        before = _unfiltered(line[0], line[1:].reshape(width, size).astype(np.int32), before)
        rows.append(before[:, :3])
    return np.stack(rows)


def _data(png: bytes) -> bytes:
    """The chunks of data, joined."""
    found, place = b"", 8
    while place < len(png):
        length, name = struct.unpack(">I4s", png[place : place + 8])
        if name == b"IDAT":
            found += png[place + 8 : place + 8 + length]
        place += 12 + length
    return found


def _unfiltered(kind: int, line: np.ndarray, above: np.ndarray) -> np.ndarray:
    """One line of pixels, of what PNG's filter `kind` made of it."""
    if kind == 0:
        return line
    if kind == 1:
        return np.cumsum(line, axis=0) % 256
    if kind == 2:
        return (line + above) % 256
    made, left, corner = np.empty_like(line), np.zeros_like(line[0]), np.zeros_like(line[0])
    for index in range(len(line)):
        guess = (left + above[index]) // 2 if kind == 3 else _paeth(left, above[index], corner)
        made[index] = left = (line[index] + guess) % 256
        corner = above[index]
    return made


def _paeth(left: np.ndarray, above: np.ndarray, corner: np.ndarray) -> np.ndarray:
    guess = left + above - corner
    off = [abs(guess - each) for each in (left, above, corner)]
    return np.where((off[0] <= off[1]) & (off[0] <= off[2]), left, np.where(off[1] <= off[2], above, corner))


def _paletted(indexes: np.ndarray, palette: np.ndarray) -> bytes:
    height, width = indexes.shape
    lines = np.zeros((height, width + 1), np.uint8)
    lines[:, 1:] = indexes
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    data = zlib.compress(lines.tobytes(), 9)
    parts = ((b"IHDR", head), (b"PLTE", palette.tobytes()), (b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in parts)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


if __name__ == "__main__":
    main()
