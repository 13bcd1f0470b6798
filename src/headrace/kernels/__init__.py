"""Loops over bytes, compiled: checks of batches, where records lie in them, JSON that looks alike.

Python is slow, and numpy does one thing to many places at once, where here each place depends
on what was found at the one before. `kernels.c` has the loops, a build of the package compiles
them (`hatch_build.py`), and two modules call them: `batches` for the log, with bytes, and
`arrays` for readers, with numpy's arrays; the broker imports no numpy. They run without
Python's lock. One of them, `send_checked`, also reads and writes: a batch on its way from a
file to a socket is checked between the two.
"""
