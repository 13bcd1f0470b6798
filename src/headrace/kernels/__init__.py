"""Loops over bytes, compiled: checks of batches, where records lie in them, JSON that looks alike.

Python is slow, and numpy does one thing to many places at once, where here each place depends
on what was found at the one before. `kernels.c` has the loops, a build of the package compiles
them (`hatch_build.py`), and three modules call them: `batches` for the log, with bytes,
`requests` for the broker, with addresses, and `arrays` for readers, with numpy's arrays; the
broker imports no numpy. They run without Python's lock, unless they are over in a
microsecond. Two of them also read and write: `send_checked`, by which a batch on its way from
a file to a socket is checked between the two, and `commit_alone`, by which one goes from a
request to the disk and to its reader.
"""
