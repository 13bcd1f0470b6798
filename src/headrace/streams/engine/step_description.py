"""What a user's step does: in plain values, against which checkpoints are held, and in words for people.

The plain values are Spark's own tree of the expression, node by node. SQL text is parsed, so that
how it is written does not count. Left out is what differs from process to process: where in the
file an expression stands, the ids that Spark gives out, the counters in the names of a lambda's
variables. Of a user's own Python function only the name and the type are known.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know

from headrace.streams.engine.projection import Select, Step, Where

__all__ = ["describe_step", "step_in_words"]

_PASSING = ("exprId", "resultId", "func", "nonInheritableMetadataKeys", "num-children", "class")
_LAMBDA_VARIABLE = "UnresolvedNamedLambdaVariable"
# In the text of a Python function's arguments Spark also gives the line of the file and an address in memory.
_TRACE = r"Some\(\[Ljava\.lang\.StackTraceElement;"
_ORIGIN = re.compile(rf",Origin\((?:None,){{7}}{_TRACE}@[0-9a-f]+\),.*?,None\)|(?<={_TRACE})@[0-9a-f]+")


def describe_step(step: Step) -> dict[str, Any]:
    """A step in plain values; equal ones compute the same."""
    if isinstance(step, Where):
        return {"step": "where", "condition": _describe(step.condition)}
    if isinstance(step, Select):
        return {"step": "select", "columns": [_describe(each) for each in step.columns]}
    return {"step": "with", "columns": {name: _describe(each) for name, each in step.columns.items()}}


def _describe(column: Column | str) -> dict[str, Any]:
    found: Any = F.expr(column) if isinstance(column, str) else column
    jvm: Any = SparkContext._jvm
    converter = getattr(jvm.org.apache.spark.sql.classic, "ColumnNodeToExpressionConverter$")
    expression = getattr(converter, "MODULE$").apply(found._jc.node())
    nodes = json.loads(expression.toJSON())
    for number, missing in _not_in_json(expression, nodes).items():
        nodes[number] |= missing
    return _tree(iter(nodes), {})


def _not_in_json(expression: Any, nodes: list[dict[str, Any]]) -> dict[int, dict[str, str]]:
    """By the number of a node, what Spark's JSON leaves out: how a cast fails, and the bytes of a literal."""
    if not any(_is_incomplete(node) for node in nodes):
        return {}
    found = {}
    for number, (node, each) in enumerate(zip(nodes, _in_order(expression), strict=True)):
        if _is_incomplete(node):
            is_cast = _class(node) == "Cast"
            found[number] = {"evalMode": str(each.evalMode())} if is_cast else {"value": str(each.sql())}
    return found


def _is_incomplete(node: dict[str, Any]) -> bool:
    return _class(node) == "Cast" or (_class(node) == "Literal" and node["dataType"] == "binary")


def _in_order(expression: Any) -> Iterator[Any]:
    """The nodes of an expression, each before its children."""
    yield expression
    children = expression.children()
    for number in range(children.size()):
        yield from _in_order(children.apply(number))


def _tree(nodes: Iterator[dict[str, Any]], variables: dict[str, str]) -> dict[str, Any]:
    """The next node with its children; `variables` has the names of lambda variables met so far."""
    node = next(nodes)
    fields = {name: _plain(value) for name, value in node.items() if name not in _PASSING}
    if _class(node) == _LAMBDA_VARIABLE:
        first, *rest = node["nameParts"].strip("[]").split(", ")
        fields["nameParts"] = [variables.setdefault(first, f"#{len(variables)}"), *rest]
    described = {name: value for name, value in fields.items() if value not in (None, False, [], {})}
    children = [_tree(nodes, variables) for _ in range(node["num-children"])]
    return {"node": _class(node), **described, **({"of": children} if children else {})}


def _plain(value: Any) -> Any:
    """A field of a node; nodes in it are left out, since they stand among its children, too."""
    if isinstance(value, list):
        return [_plain(each) for each in value if not (isinstance(each, dict) and "class" in each)]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


def _class(node: dict[str, Any]) -> str:
    return str(node["class"]).rpartition(".")[2]


def step_in_words(step: Step) -> str:
    """A step as people read it; nothing is decided by it."""
    if isinstance(step, Where):
        return f"where {_words(step.condition)}"
    if isinstance(step, Select):
        return "select " + ", ".join(map(_words, step.columns))
    return "with " + ", ".join(f"{name}={_words(column)}" for name, column in step.columns.items())


def _words(column: object) -> str:
    """A column as Spark writes it, without the Column<'…'> around it and where it comes from."""
    return _ORIGIN.sub("", str(column).removeprefix("Column<'").removesuffix("'>"))
