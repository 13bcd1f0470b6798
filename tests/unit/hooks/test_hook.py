"""Declarations: what is refused, and that nothing secret can be in them."""

import json

import pytest

from headrace import App
from headrace.errors import ConfigError
from headrace.hooks.hook import Hook
from headrace.secret_references import resolve

GOOD = {"url": "https://example.com/in", "secret": "env:S"}
MAIL = {"to": "ops@example.com", "subject": "large order {order_id}", "smtp": "env:SMTP"}


def test_declared_hooks_come_back_from_json_as_they_were():
    app = App("shop")
    app.webhook("orders", **GOOD, allow=["10.0.0.0/8"], tries=3, first_wait="10 ms", start="earliest")
    app.email("orders", **MAIL, sender="a@example.com", template="{amount}")
    assert list(app.hooks) == ["orders.webhook", "orders.email"]
    for hook in app.hooks.values():
        assert Hook.from_json(json.loads(json.dumps(hook.to_json()))) == hook


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"secret": "whsec_planted"}, "env:"),
        ({"url": "ftp://example.com/"}, "https://"),
        ({"url": "https:///path"}, "https://"),
        ({"url": "https://user:planted@example.com/"}, "password"),
        ({"url": "https://example.com/a b"}, "spaces"),
        ({"url": "https://example.com/\r\nX: y"}, "printable"),
        ({"url": "https://example.com:99999/"}, "is not a URL"),
        ({"url": "http://127.0.0.1:80/"}, "allow="),
        ({"url": "http://[::1]/"}, "allow="),
        ({"url": "http://169.254.169.254/latest"}, "allow="),
        ({"url": "http://10.1.2.3/", "allow": ["192.168.0.0/16"]}, "allow="),
        ({"allow": ["10.0.0.1/8"]}, "10.0.0.1/8"),
        ({"tries": 0}, "tries"),
        ({"first_wait": "2 hours"}, "wait"),
        ({"timeout": "0 seconds"}, "timeout"),
        ({"start": "latest"}, "earliest"),
        ({"name": "a/b"}, "a/b"),
    ],
)
def test_a_webhook_that_makes_no_sense_is_refused_with_the_reason(given, named):
    with pytest.raises(ConfigError) as refusal:
        App("shop").webhook("orders", **(GOOD | given))
    assert named in str(refusal.value)
    assert "planted" not in str(refusal.value)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"to": []}, "to="),
        ({"to": "ops"}, "ops"),
        ({"to": "ops@example.com\r\nBcc: all@example.com"}, "not an email address"),
        ({"to": ["a@example.com, b@example.com"]}, "not an email address"),
        ({"sender": "Ops <ops@example.com>"}, "bare"),
        ({"subject": "hello\nBcc: x@example.com"}, "one line"),
        ({"smtp": "smtp://user:planted@example.com"}, "env:NAME"),
    ],
)
def test_a_mail_that_makes_no_sense_is_refused_with_the_reason(given, named):
    with pytest.raises(ConfigError) as refusal:
        App("shop").email("orders", **(MAIL | given))
    assert named in str(refusal.value)
    assert "planted" not in str(refusal.value)


def test_a_hook_that_is_declared_twice_is_refused():
    app = App("shop")
    app.webhook("orders", **GOOD)
    app.webhook("orders", **GOOD, name="second")
    with pytest.raises(ConfigError, match="another name"):
        app.webhook("orders", **GOOD)


def test_the_query_of_a_url_is_not_shown():
    hook = App("shop").webhook("orders", **(GOOD | {"url": "https://example.com/in?token=planted"}))
    assert hook.target.shown == "https://example.com/in"


def test_a_reference_is_resolved_where_it_is_used(tmp_path):
    (tmp_path / "secret").write_text("from a file\n")
    assert resolve("env:NAME", "secret=", {"NAME": " from the environment "}) == "from the environment"
    assert resolve(f"file:{tmp_path / 'secret'}", "secret=") == "from a file"
    assert resolve("https://example.com", "url=") == "https://example.com"
    for missing in ("env:NAME", f"file:{tmp_path / 'other'}"):
        with pytest.raises(ConfigError, match="secret= of hook a"):
            resolve(missing, "secret= of hook a", {"NAME": " "})
