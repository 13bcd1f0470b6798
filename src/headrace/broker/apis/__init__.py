"""One family of APIs a file: a class that takes the services it uses, with a method for each API.

A handler takes the decoded request and returns the answer's fields (see `wire`), or a
`Reply` that it encoded itself. It decides nothing that a pure room could decide. `handlers`
is the table of all of them, `versions` says which versions they serve, `dispatch` calls them.
"""
