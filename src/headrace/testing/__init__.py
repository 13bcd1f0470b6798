"""For tests of applications and of Headrace itself.

`headrace.testing.broker` runs brokers, as processes or in a thread;
`headrace.testing.kafka` runs a real Kafka to compare with;
`headrace.testing.postgres` runs a real PostgreSQL from a wheel;
`headrace.testing.disk` has disks that fail. Nothing in the other rooms imports
this one.
"""
