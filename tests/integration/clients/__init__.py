"""The clients' contract: one suite, four real Kafka clients, run on Headrace and on Kafka itself.

`driver` is the interface, `drivers` its Python implementations, `java` the one
in Java; each runs in a process of its own (`host`, spoken to by `remote`), so
that a client can be killed as a crashed program would be and a client that
hangs takes no test run with it.
"""
