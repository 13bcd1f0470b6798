"""Which columns tell the rows of a table apart, as far as the declaration of an application says. Pure.

A key that is *named* here is only a proposal where nothing proves it: of such a view the first row of
each key is shown, by an operator of its own. One that is *certain* needs none.
"""

from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "Certain",
    "Key",
    "all_columns",
    "always",
    "certain_joined_key",
    "joined_key",
    "key_behind",
    "key_of_first",
    "shared_columns",
    "with_place",
]

Key = tuple[str, ...]
# From the certain keys of the inputs (None: nothing is certain), and the columns of what is made of
# them, the certain key of that.
Certain = Callable[[Sequence[Key | None], Key], Key | None]


def joined_key(left: Key, right: Key, left_on: Key, right_on: Key, how: str) -> Key:
    """The key of a join of two tables with these keys; empty if nothing is known.

    That of the side whose rows have one partner at most; otherwise both. Columns by which the two
    are joined count once.
    """
    if how in ("semi", "anti"):
        return left
    if not left or not right:
        return ()
    if how == "full":
        return _full_key(left, right, left_on, right_on)
    if how == "right":
        if set(left) <= set(left_on):
            return right
        same = dict(zip(left_on, right_on, strict=True))
        return tuple(dict.fromkeys([*(same.get(name, name) for name in left), *right]))
    if set(right) <= set(right_on):
        return left
    same = dict(zip(right_on, left_on, strict=True))
    return tuple(dict.fromkeys([*left, *(same.get(name, name) for name in right)]))


def certain_joined_key(
    keys: tuple[Key | None, Key | None],
    on: tuple[Key, Key],
    how: str,
    never_null: tuple[bool, bool],
) -> Key | None:
    """The key of a join if it is certain, from what is certain of both sides.

    `never_null` says whether a side's key has no nulls. In a full join two rows without partner may look
    alike where it has.
    """
    left, right = keys
    if left is None or (right is None and how not in ("semi", "anti")):
        return None
    found = joined_key(left, right or (), *on, how)
    if not found or (
        how == "full" and not any(_sets_apart(*each, on) for each in zip(keys, never_null, on, strict=True))
    ):
        return None
    return found


def _full_key(left: Key, right: Key, left_on: Key, right_on: Key) -> Key:
    """Both keys; where rows without partner have no other columns of them, all that the two are joined by."""
    shared = shared_columns(left_on, right_on)
    more = (*left_on, *right_on) if {*left, *right} <= shared else ()
    return tuple(dict.fromkeys([*left, *right, *more]))


def _sets_apart(key: Key | None, is_never_null: bool, own_on: Key, on: tuple[Key, Key]) -> bool:
    """Whether a row without partner of this side is told apart from each of the other side's.

    By a column that the other side's rows have null, or by what the two are joined by.
    """
    if key is None or not is_never_null:
        return False
    shared = shared_columns(*on)
    return not set(key) <= shared or (set(own_on) <= set(key) and set(own_on) == shared)


def shared_columns(left_on: Key, right_on: Key) -> set[str]:
    """What both sides call alike, and is one column of the result."""
    return {one for one, other in zip(left_on, right_on, strict=True) if one == other}


def all_columns(_keys: Sequence[Key | None], columns: Key) -> Key | None:
    """Of a set of rows."""
    return columns


def key_of_first(keys: Sequence[Key | None], _columns: Key) -> Key | None:
    """Of rows each of which is one of the first input's."""
    return keys[0]


def always(key: Key) -> Certain:
    """Whatever the inputs are."""
    return lambda _keys, _columns: key


def with_place(column: str, position: str | None) -> Certain:
    """Of the elements of a column of the first input, whose place is in the column `position`."""

    def certain(keys: Sequence[Key | None], _columns: Key) -> Key | None:
        if keys[0] is None or position is None or column in keys[0]:
            return None
        return (*keys[0], position)

    return certain


def key_behind(key: Key | None, kept: Mapping[str, str]) -> Key | None:
    """A key behind steps that left columns as they were: `kept` has their new names, and the old ones."""
    if key is None:
        return None
    new = {old: name for name, old in reversed([*kept.items()])}
    return tuple(new[name] for name in key) if set(key) <= new.keys() else None
