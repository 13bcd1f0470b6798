"""The same programs on our broker and on a real Kafka, and what each of them answers.

A case is a function that does something to a log and returns what a client could
observe: codes, offsets, order, values; nothing random. `answers.json` holds what
Kafka 4.3 returned. The tests run every case on ours and compare it with that, and
on a live Kafka, where one can be had, to show that the file still says the truth.
docs/reference/kafka-cases.md is generated from the cases (`python -m parity.page`).
"""
