import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.console.problems import ProblemError
from headrace.console.write.cloudevents import BATCH, STRUCTURED, event_records

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=20)
EXTENSIONS = st.dictionaries(st.from_regex(r"x[a-z0-9]{1,8}", fullmatch=True), TEXT, max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner, max_size=3), max_leaves=5
)


@st.composite
def attributes(draw):
    found = {name: draw(TEXT) for name in ("id", "source", "type")} | {"specversion": "1.0"}
    for name in draw(st.sets(st.sampled_from(["subject", "time", "dataschema", "partitionkey"]))):
        found[name] = draw(TEXT)
    return found | draw(EXTENSIONS)


@settings(max_examples=40)
@given(attributes(), JSON)
def test_the_three_modes_write_the_same_record(event, data):
    whole = {**event, "datacontenttype": "application/json", "data": data}
    (structured,) = event_records([], STRUCTURED, json.dumps(whole).encode())
    (batched,) = event_records([], f"{BATCH}; charset=utf-8", json.dumps([whole]).encode())
    headers = [(f"ce-{name}", quote(text)) for name, text in event.items()]
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    (binary,) = event_records(headers, "application/json", body)
    assert structured == batched == binary


@settings(max_examples=40)
@given(attributes())
def test_attributes_become_headers_and_the_partition_key_the_key(event):
    (record,) = event_records([], STRUCTURED, json.dumps(event).encode())
    assert {name: value.decode() for name, value in record.headers} == {
        f"ce_{name}": text for name, text in event.items()
    }
    assert record.key == (event["partitionkey"].encode() if "partitionkey" in event else None)
    assert record.value is None


EVENT = {"id": "1", "source": "/shop", "specversion": "1.0", "type": "order"}


def written(**members):
    (record,) = event_records([], STRUCTURED, json.dumps({**EVENT, **members}).encode())
    return record


def test_bytes_and_plain_text_are_written_as_they_are():
    assert written(data_base64=base64.b64encode(b"\xff\x00").decode()).value == b"\xff\x00"
    assert written(data="héllo", datacontenttype="text/plain").value == "héllo".encode()
    assert written(data="héllo").value == '"héllo"'.encode()
    assert written(data={"a": 1}, datacontenttype="application/vnd.shop+json").value == b'{"a":1}'


def test_attributes_of_other_types_have_their_text_form():
    headers = dict(written(flag=True, count=-7, none=None).headers)
    assert (headers["ce_flag"], headers["ce_count"]) == (b"true", b"-7")
    assert "ce_none" not in headers


@pytest.mark.parametrize(
    "members",
    [
        {"id": ""},
        {"specversion": "0.3"},
        {"type": None},
        {"Bad": "x"},
        {"bad-name": "x"},
        {"data": 1, "data_base64": "AA=="},
        {"data_base64": "?"},
        {"data_base64": 7},
        {"list": [1]},
        {"half": 0.5},
    ],
)
def test_what_is_no_event_is_refused(members):
    with pytest.raises(ProblemError) as refused:
        written(**members)
    assert refused.value.problem.status == 400


@pytest.mark.parametrize(
    ("kind", "body"), [(STRUCTURED, b"[]"), (BATCH, b"{}"), (STRUCTURED, b"{"), (BATCH, b"[7]")]
)
def test_bodies_of_another_shape_are_refused(kind, body):
    with pytest.raises(ProblemError) as refused:
        event_records([], kind, body)
    assert refused.value.problem.status == 400


def test_a_request_without_any_mode_is_told_which_there_are():
    with pytest.raises(ProblemError) as refused:
        event_records([("accept", "*/*")], "application/json", b"{}")
    assert refused.value.problem.status == 415
    assert "ce-id" in refused.value.problem.next_step
