"""Signatures, held against the reference library of Standard Webhooks."""

import base64
import os
import time

import pytest
import standardwebhooks

from headrace.errors import ConfigError
from headrace.hooks.send.signing import parse_secrets, signed_headers

BODY = '{"type":"orders","data":{"name":"Zoë 🎉"}}'.encode()


def secret(size=32):
    return "whsec_" + base64.b64encode(os.urandom(size)).decode()


def headers(text, body=BODY, at=None):
    return signed_headers(parse_secrets(text, "env:S"), "msg_1", int(at or time.time()), body)


@pytest.mark.parametrize("size", [24, 25, 26, 32, 64])
def test_the_reference_library_accepts_what_we_sign(size):
    key = secret(size)
    standardwebhooks.Webhook(key).verify(BODY, headers(key))


def test_a_secret_without_padding_is_the_same_secret():
    key = secret(25)
    standardwebhooks.Webhook(key).verify(BODY, headers(key.rstrip("=")))


def test_while_secrets_change_a_receiver_with_either_is_served():
    old, new = secret(), secret()
    signed = headers(f"{new} {old}")
    standardwebhooks.Webhook(old).verify(BODY, signed)
    standardwebhooks.Webhook(new).verify(BODY, signed)


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "msg_2"},
        {"webhook-timestamp": str(int(time.time()) - 1)},
        {"webhook-signature": "v1,AAAA"},
    ],
)
def test_the_reference_library_refuses_what_was_changed(change):
    key = secret()
    with pytest.raises(standardwebhooks.webhooks.WebhookVerificationError):
        standardwebhooks.Webhook(key).verify(BODY, headers(key) | change)
    with pytest.raises(standardwebhooks.webhooks.WebhookVerificationError):
        standardwebhooks.Webhook(key).verify(BODY + b" ", headers(key))


@pytest.mark.parametrize(
    "text",
    ["", "  ", "planted", "whsec_", "whsec_!!planted!!", "whsec_cGxhbnRlZA==", "whsec_" + "A" * 200],
)
def test_what_is_no_secret_is_refused_without_being_shown(text):
    with pytest.raises(ConfigError) as refusal:
        parse_secrets(text, "env:ORDERS")
    assert "env:ORDERS" in str(refusal.value)
    assert "planted" not in str(refusal.value) and "cGxhbnRlZA" not in str(refusal.value)
