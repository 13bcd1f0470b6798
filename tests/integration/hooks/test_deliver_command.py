"""`headrace deliver` and `headrace hooks` as the real commands; and secrets, which stay where they are."""

import json

import pytest
from hook_lives import FAST, LOCAL, DelivererLife, new_secret
from receivers import OK, Receiver, answer

from headrace.cli.main import run as command_line


@pytest.fixture
def headrace(capsys):
    """The command line, in this process."""

    def run(*arguments, expect=0):
        code = command_line([str(each) for each in arguments])
        done = capsys.readouterr()
        assert code == expect, done
        return done.out + done.err

    return run


def test_the_command_delivers_tells_and_ends(log, receiver, tmp_path, headrace):
    topic = log.topic()
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    name, data = f"{topic}.webhook", tmp_path / "data"
    life = DelivererLife(log, data)
    (before,) = json.loads(headrace("hooks", "list", "--data", data, "--json"))["hooks"]
    assert "has never run" in before["problem"]
    tried = json.loads(headrace("hooks", "test", name, "--data", data, "--json"))
    assert tried["outcome"] == "delivered"
    assert receiver.requests[0].data == {"test": True, "hook": name}
    with life:
        log.send(topic, "x")
        receiver.wait_for_count(2)
        log.wait_for_counts(name, delivered=1)
        headrace("hooks", "disable", name, "--data", data)
        table = headrace("hooks", "list", "--data", data)
        assert name in table and "by `headrace hooks`" in table
        assert life.stop() == 0
    receiver.reply = lambda *_: answer(500)
    assert "retry" in headrace("hooks", "test", name, "--data", data, expect=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("deliver", "--data", "{}"), "no application"),
        (("hooks", "list", "--data", "{}"), "no application"),
        (("hooks", "test", "x", "--data", "{}"), "no application"),
    ],
)
def test_a_folder_without_an_application_is_told(tmp_path, arguments, said, headrace):
    assert said in headrace(*(each.format(tmp_path) for each in arguments), expect=2)


def test_a_hook_that_is_not_there_is_told(log, headrace):
    assert "nobody" in headrace("hooks", "enable", "nobody", "--bootstrap", log.bootstrap, expect=1)


def test_secrets_are_nowhere_but_where_they_were_put(log, tmp_path, headrace):
    """Planted in the environment and in URLs; looked for in everything that is written or said."""
    secret, planted = new_secret(), "pLaNtEd-7Qx"
    topic = log.topic()
    with Receiver(
        secret, reply=lambda request, number: OK if number % 2 else answer(400, [], b"no")
    ) as receiver:
        log.app.webhook(
            topic, url="env:HOOK_URL", secret="env:HOOK_SECRET", allow="127.0.0.1", name="url", **FAST
        )
        log.app.webhook(
            topic, url=f"{receiver.url}?token={planted}", secret="env:HOOK_SECRET", allow="127.0.0.1",
            name="query", **FAST,
        )  # fmt: skip
        log.app.webhook(topic, url="https://example.com", secret="env:BAD_SECRET", name="bad", **FAST)
        log.app.email(topic, to="a@b.c", subject="x", smtp="env:SMTP", name="mail", tries=2, **FAST)
        log.app.email(topic, to="a@b.c", subject="x", smtp="env:BAD_SMTP", name="badmail", **FAST)
        environment = {
            "HOOK_URL": f"{receiver.url}?token={planted}",
            "HOOK_SECRET": secret,
            "BAD_SECRET": f"whsec_{planted}",
            "SMTP": f"smtp://user:{planted}@127.0.0.1:1",
            "BAD_SMTP": f"nonsense://user:{planted}@127.0.0.1",
        }
        life = DelivererLife(log, tmp_path / "data", environment=environment)
        with life:
            log.send(topic, *range(4))
            log.wait_for(
                lambda hooks: (
                    hooks["mail"]["counts"]["dead"] == 4
                    and hooks["bad"]["problem"]
                    and hooks["badmail"]["problem"]
                    and all(sum(hooks[each]["counts"].values()) >= 4 for each in ("url", "query"))
                )
            )
            listed = headrace("hooks", "list", "--bootstrap", log.bootstrap, "--json")
            listed += headrace("hooks", "list", "--data", life.data)
            assert life.stop() == 0
    dead = log.read(f"{log.app.name}.hooks.dead")
    state = log.read(f"{log.app.name}.hooks")
    assert dead and state
    written = [
        life.messages.read_text(),
        listed,
        *(str((each.key(), each.value(), each.headers())) for each in [*dead, *state]),
    ]
    for text in written:
        for secret_text in (planted, secret, secret.removeprefix("whsec_")):
            assert secret_text not in text, text
