"""The Python clients behind the `Driver` interface; each module exports one `open_driver`."""
