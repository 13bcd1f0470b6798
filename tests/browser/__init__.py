"""A package, unlike the other folders of tests: only so do its fixtures end with its last test.

Playwright keeps a loop running in the thread of the tests for as long as it is open,
and no test that runs a loop of its own can follow.
"""
