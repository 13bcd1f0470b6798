"""Histories that clients write down while the broker and they themselves are killed, and what must hold.

Every client is a process of its own and appends what it attempts and what comes of it to a
file (`recorder`). Afterwards the files are read into one `History`, over which the named
invariants (`invariants`) are pure functions. `campaign` starts the clients and disturbs
them.
"""
