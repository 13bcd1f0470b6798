"""Logins while users change: one begun before its user was removed, or got another password, is refused."""

import asyncio

import pytest
from tests.unit.broker.access.test_scram import FIRST, final_message

from headrace.broker.access.authority import Authority
from headrace.broker.access.scram import Mechanism, RefusedError, credential_from_password

SHA256 = Mechanism.SCRAM_SHA_256


def credential(password):
    return credential_from_password(SHA256, password, b"salt", 4096)


def log_in(tmp_path, meanwhile):
    """The principal of a login as "user", whose state is changed between challenge and proof."""

    async def run():
        authority = Authority(enforced=True, super_users=frozenset())
        await authority.load(tmp_path, None)
        try:
            await authority.change(lambda state: state.with_credential("user", credential("pencil")))
            session = authority.session("127.0.0.1", asyncio.Transport())
            assert session.login.choose(SHA256.sasl_name)
            challenge = (await authority.step(session, FIRST)).message
            await authority.change(meanwhile)
            await authority.step(session, final_message(SHA256, "pencil", challenge))
            return session.principal
        finally:
            authority.close()

    return asyncio.run(run())


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda state: state.without_credential("user", SHA256),
        lambda state: state.with_credential("user", credential("another")),
    ],
    ids=["removed", "another password"],
)
def test_a_login_that_was_begun_before_its_user_changed_is_refused(tmp_path, meanwhile):
    with pytest.raises(RefusedError, match="changed meanwhile"):
        log_in(tmp_path, meanwhile)


def test_a_change_of_somebody_else_harms_no_login(tmp_path):
    assert log_in(tmp_path, lambda state: state.with_credential("other", credential("x"))) == "User:user"
