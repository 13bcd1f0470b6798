"""Whether a changed application still fits its checkpoint."""

import copy
import json
from dataclasses import asdict, dataclass

import pytest
from tests.unit.own_aggregates import Product

from headrace import App, agg, tumbling
from headrace.app.query.checkpoint.fit import describe_query, reasons_to_rebuild
from headrace.app.query.checkpoint.manifest import Manifest, SideProgress
from headrace.checked_json import decode_fields, encode_fields
from headrace.errors import ConfigError
from headrace.testing.application import plan_for_test

QUERY = {
    "stream": {
        "decoder": "json",
        "event_time": "at",
        "sent_at": None,
        "lateness_us": 10,
        "max_ahead_us": 20,
    },
    "fields": {"user": "string", "amount": "int64"},
    "views": {"a": {"steps": [], "window": "Tumbling(size_us=60)", "by": ["user"]}},
}


def changed(**changes):
    query = copy.deepcopy(QUERY)
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = query
        for parent in parents:
            place = place[parent]
        place[last] = value
    return query


def test_the_same_application_fits():
    assert reasons_to_rebuild(QUERY, changed()) == []


def test_a_column_that_is_added_fits():
    assert reasons_to_rebuild(QUERY, changed(fields__more="string")) == []


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (changed(stream__lateness_us=11), "lateness_us was 10 and is 11"),
        (changed(fields__amount="double"), "column 'amount' was int64 and is double"),
        (changed(views__b={"steps": []}), "view 'b' is new"),
        (changed(views={}), "view 'a' is gone"),
        (changed(views__a__window="Tumbling(size_us=61)"), "view 'a': window was"),
        (changed(views__a__steps=["where x"]), "view 'a': steps was [] and is ['where x']"),
    ],
)
def test_what_the_state_cannot_follow_is_named(query, reason):
    (found,) = reasons_to_rebuild(QUERY, query)
    assert reason in found


def test_a_manifest_is_read_as_it_was_written(tmp_path):
    manifest = Manifest.new(QUERY, 8)
    manifest.write(tmp_path / "query")
    assert Manifest.read(tmp_path / "query") == manifest
    assert Manifest.new(QUERY, 8).query_id != manifest.query_id


def test_there_may_be_none(tmp_path):
    assert Manifest.read(tmp_path) is None


def test_a_newer_one_is_refused(tmp_path):
    Manifest.new(QUERY, 8).write(tmp_path)
    file = tmp_path / "manifest.json"
    fields = decode_fields(file.read_bytes(), None).fields
    file.write_bytes(encode_fields(fields | {"format": 99}))
    with pytest.raises(ConfigError, match="newer version"):
        Manifest.read(tmp_path)


def test_a_flipped_bit_is_damage_that_is_named_with_what_to_do(tmp_path):
    made = Manifest.new(
        QUERY, 8, begins={"0": 12}, outputs={"derived": {"0": 7}}, progress=SideProgress({"0": 3}, ("q",))
    )
    made.write(tmp_path)
    file = tmp_path / "manifest.json"
    data = file.read_bytes()
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            file.write_bytes(flipped)
            try:
                assert Manifest.read(tmp_path) == made
            except ConfigError as refused:
                assert str(file) in str(refused)
                assert "restore it from a copy, or remove the folder" in str(refused)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"{}", b"\xff", b'{"format": "3"}', b'{"format": 3}', b'{"format": null}'],
)
def test_what_was_never_a_manifest_is_damage_too(tmp_path, data):
    (tmp_path / "manifest.json").write_bytes(data)
    with pytest.raises(ConfigError, match=r"manifest\.json is damaged .*restore it from a copy, or remove"):
        Manifest.read(tmp_path)


def test_one_of_an_earlier_version_has_no_checksum(tmp_path):
    made = Manifest.new(QUERY, 8, begins={"0": 12})
    (tmp_path / "manifest.json").write_text(json.dumps(asdict(made), indent=2))
    assert Manifest.read(tmp_path) == made


class Tuned(Product):
    """With fields of all kinds, those of the last two known by name only."""

    def __init__(self, limit=2, names=("a", "b")):
        self.limit = limit
        self.names = frozenset(names)
        self.function = len
        self.other = object()


@dataclass(frozen=True, slots=True)
class Slotted(Product):
    columns: tuple[str, ...] = ("x",)
    limit: int = 2


class Renamed(Product):
    pass


def kept_of(own):
    """What the manifest of an application with this aggregate has, as it is read again."""
    app = App("shop")
    orders = app.stream("orders", schema="x double, other double")
    app.view(name="products")(lambda: orders.window(tumbling("1 minute")).agg(it=agg.custom(own)))
    (planned,) = plan_for_test(app, None)
    return json.loads(json.dumps(describe_query(planned)))


@pytest.mark.parametrize("own", [Product, Tuned, Slotted])
def test_a_users_own_aggregate_fits_the_next_process(own):
    before, now = kept_of(own()), kept_of(own())
    assert reasons_to_rebuild(before, now) == []
    assert " at 0x" not in json.dumps(now)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (Product(), Renamed()),
        (Tuned(limit=2), Tuned(limit=3)),
        (Tuned(names="ab"), Tuned(names="ac")),
        (Slotted(limit=2), Slotted(limit=3)),
        (Slotted(("x",)), Slotted(("other",))),
    ],
)
def test_a_users_own_aggregate_of_another_name_or_other_fields_needs_a_rebuild(before, now):
    (reason,) = reasons_to_rebuild(kept_of(before), kept_of(now))
    assert "view 'products': aggregates was" in reason
