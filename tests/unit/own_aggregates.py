"""Aggregates as a user writes them, for the tests of what is made of them."""

import pyarrow as pa


class Product:
    """The aggregate of docs/explanation/windows.md: it has no words of its own for what it is."""

    columns = ("x",)

    def state_types(self, inputs):
        return [pa.float64()]

    def result_type(self, inputs):
        return pa.float64()

    def partial(self, inputs, groups):
        return [groups.aggregate(inputs[0], "product")]

    def merge(self, states, groups):
        return [groups.aggregate(states[0], "product")]

    def finish(self, states):
        return states[0]
