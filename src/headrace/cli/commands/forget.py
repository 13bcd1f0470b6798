"""`headrace forget`: destroys the keys of a subject, and says so in a signed receipt."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from headrace.cli.clients import require_listener
from headrace.cli.commands.views import DataOption, described_in, folder_of
from headrace.cli.failures import ExitCode, UsageError
from headrace.cli.identity import connection_to
from headrace.cli.options import Json
from headrace.cli.prompts import require_confirmation
from headrace.cli.terminal import Output
from headrace.clock import SystemClock
from headrace.errors import RequestError

if TYPE_CHECKING:
    from headrace.client import Connection
    from headrace.personal import Clear, KeyStore

__all__ = ["clear_by", "forget_subject"]


def forget_subject(
    subject: Annotated[
        str | None, typer.Argument(metavar="SUBJECT", help="The subject, such as the id of a customer.")
    ] = None,
    check: Annotated[
        Path | None, typer.Option("--check", metavar="RECEIPT", help="Check a receipt instead.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="The application's file, if it was never run here."
        ),
    ] = None,
    data: DataOption = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap", "-b", metavar="HOST:PORT[,…]", help="The log. Default: the application's."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> int:
    """Forget a subject: destroy the keys of its data."""
    if (subject is None) == (check is None):
        raise UsageError("name a subject to forget, or a receipt with --check")
    output = Output(as_json=as_json)
    if subject is None:
        assert check is not None
        return _check(check, _keys(file, data), output)
    return _forget(subject, file, data, bootstrap, yes, output)


def _forget(
    subject: str, file: Path | None, data: str | None, bootstrap: str | None, yes: bool, output: Output
) -> int:
    from headrace.personal import forget

    app, described, servers = _application(file, data)
    servers = bootstrap or servers
    require_listener(servers)
    store = _keys(file, data)
    if not yes:
        require_confirmation(
            f"This makes everything personal of subject {subject} unreadable for ever", subject
        )
    clear = clear_by(connection_to(servers), app, described)
    path = forget(store, subject, at_ms=SystemClock().now_ms(), clear=clear)
    receipt = orjson.loads(path.read_bytes())
    output.document({"path": str(path), **receipt}, _render)
    return ExitCode.FAILED if receipt["left"] else ExitCode.DONE


def _check(path: Path, store: "KeyStore", output: Output) -> int:
    from headrace.personal import check_receipt, public_key

    try:
        found = orjson.loads(path.read_bytes())
    except ValueError:
        raise RequestError(f"{path} is not a receipt of `headrace forget`") from None
    receipt = check_receipt(found, public_key(store.signing))
    back = [each for each in receipt.keys if store.has_key_id(bytes.fromhex(each))]
    output.document(
        {"subject": receipt.subject, "forgotten_at": receipt.forgotten_at, "signed": True, "back": back},
        lambda _: _render_check(receipt.subject, receipt.forgotten_at, back),
    )
    return ExitCode.FAILED if back else ExitCode.DONE


def clear_by(connection: "Connection", app: str, described: Sequence[Mapping[str, Any]]) -> "Clear":
    """What forgetting does about records of these entity types that are in the clear."""
    from headrace.sourcing import clear_records, entity_group

    return lambda subject: clear_records(connection, app, described, entity_group(app), subject)


def _application(file: Path | None, data: str | None) -> tuple[str, list[Mapping[str, Any]], str]:
    """Name, entity types and log of the application: from its file, or as it ran last."""
    if file is not None:
        from headrace.app import import_app

        loaded = import_app(file)
        described: list[Mapping[str, Any]] = [each.describe() for each in loaded.entity_types.values()]
        return loaded.name, described, loaded.find_log().bootstrap_servers
    found = described_in(data)
    return found.app, list(found.entities), found.bootstrap


def _keys(file: Path | None, data: str | None) -> "KeyStore":
    from headrace.personal import key_place, open_keys

    if file is not None and data is None:
        from headrace.app import import_app

        return import_app(file).personal
    place = key_place(folder_of(data))
    if not place.path.exists():
        raise RequestError(f"there are no keys at {place.path}; set HEADRACE_KEYS if they are elsewhere")
    return open_keys(place)


def _render(data: Mapping[str, Any]) -> str:
    lines = [f"forgotten: {data['subject']}", *(f"  {each}" for each in data["steps"])]
    lines += [f"  LEFT: {each}" for each in data["left"]]
    return "\n".join([*lines, f"  receipt: {data['path']}"])


def _render_check(subject: str, at: str, back: Sequence[str]) -> str:
    if back:
        return f"the receipt is signed, but the keys are back: {', '.join(back)}; was a backup restored?"
    return f"the receipt holds: {subject} was forgotten at {at}, and its keys are not in the store"
