"""Bytes as text: nothing hostile for people, nothing lost for machines."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.terminal.payloads import decode_payload, encode_payload, escape, indent_json, render_payload

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.text())
def test_escaped_text_holds_no_control_character(text):
    hidden = {"Cc", "Cs", "Zl", "Zp"}
    assert not [c for c in escape(text) if unicodedata.category(c) in hidden]


@given(st.binary())
def test_a_payload_for_people_never_holds_an_escape_sequence(payload):
    shown = render_payload(payload)
    assert not [c for c in shown if unicodedata.category(c) == "Cc" and c not in "\n\t"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\rb", "a\\x0db"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\U000e0041", "\\U000e0041"),
        ("Grüße 👩\u200d🚀", "Grüße 👩\u200d🚀"),
    ],
)
def test_characters_that_could_deceive_are_shown_as_their_code(text, expected):
    assert escape(text) == expected


@given(st.dictionaries(st.text(), json_values) | st.lists(json_values))
def test_indented_json_means_the_same(value):
    text = json.dumps(value)
    assert json.loads(indent_json(text)) == value


def test_json_is_indented_with_its_own_tokens():
    text = '{"n": 1.10, "n": 12345678901234567890123, "e": {}, "l": [1, []], "s": "a,{\\"}"}'
    assert indent_json(text) == (
        '{\n  "n": 1.10,\n  "n": 12345678901234567890123,\n  "e": {},\n  "l": [\n    1,\n    []\n  ],\n'
        '  "s": "a,{\\"}"\n}'
    )


@pytest.mark.parametrize(
    "text", ["12", '"text"', "null", "{broken", "[NaN]", "", "[" * 100_000, "[" * 50 + "]" * 50]
)
def test_what_is_no_json_document_or_too_deep_to_read_stays_as_it_is(text):
    assert indent_json(text) is None


def test_bytes_that_are_no_text_are_shown_as_hex():
    assert render_payload(b"\xff\x00\x01\x02\x03") == "ff 00010203"


@given(st.binary())
def test_a_payload_for_machines_keeps_every_byte(payload):
    assert decode_payload(*encode_payload(payload)) == payload


def test_a_null_is_not_an_empty_payload():
    assert encode_payload(None) == (None, None)
    assert encode_payload(b"") == ("", "text")
