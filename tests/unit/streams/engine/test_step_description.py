"""A step in words."""

from headrace.streams.engine.projection import Where
from headrace.streams.engine.step_description import step_in_words


def called_with(column, address, place="None"):
    """A Python function of a column, as Spark 4.3 writes it."""
    origin = f"Origin({'None,' * 7}Some([Ljava.lang.StackTraceElement;@{address}),{place},None)"
    inner = f"columnnodeexpression(UnresolvedAttribute(List({column}),None,false,{origin}))"
    return step_in_words(Where(f"Column<'(is_known({inner}) AND (at > 1))'>"))


def test_of_a_python_function_the_name_and_the_arguments_are_shown_and_not_where_they_come_from():
    words = "where (is_known(columnnodeexpression(UnresolvedAttribute(List(place),None,false))) AND (at > 1))"
    assert called_with("place", "44a412ba") == words
    assert called_with("place", "38ee94e4", "Some((col,/a folder/app.py:12))") == words
    assert called_with("other", "44a412ba") != words
