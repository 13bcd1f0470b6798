"""Which columns the steps of a user leave as they are, by what Spark's analysis says of them."""

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame

__all__ = ["kept_columns", "kept_through"]


def kept_columns(before: DataFrame, after: DataFrame) -> dict[str, str]:
    """By the names behind a step, those before it of columns whose values are the same in every row.

    A column that a step only renames is one of them; one that is computed is not, whatever it computes.
    """
    old = {each.exprId().id(): each.name() for each in _listed(_analyzed(before).output())}
    plan: Any = _analyzed(after)
    is_projection = plan.getClass().getSimpleName() == "Project"
    found = {}
    for each in _listed(plan.projectList() if is_projection else plan.output()):
        source = each.child() if each.getClass().getSimpleName() == "Alias" else each
        if source.getClass().getSimpleName() == "AttributeReference" and source.exprId().id() in old:
            found[each.name()] = old[source.exprId().id()]
    return found


def kept_through(first: Mapping[str, str], then: Mapping[str, str]) -> dict[str, str]:
    """What two steps keep, one behind the other."""
    return {name: first[middle] for name, middle in then.items() if middle in first}


def _analyzed(frame: DataFrame) -> Any:
    jvm_frame: Any = frame._jdf
    return jvm_frame.queryExecution().analyzed()


def _listed(items: Any) -> Iterator[Any]:
    return (items.apply(number) for number in range(items.size()))
