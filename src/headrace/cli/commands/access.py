"""`headrace users` and `headrace acls`: who there is, and who may do what."""

import os
import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.clients import new_admin
from headrace.cli.failures import UsageError
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, Yes
from headrace.cli.passwords import read_password_or_stdin
from headrace.cli.prompts import require_confirmation
from headrace.cli.terminal import Output, table_text
from headrace.client.connect import explained
from headrace.client.topics import ANSWER_TIMEOUT_S, kafka
from headrace.errors import RequestError

__all__ = ["acls", "users"]

ITERATIONS = 16384
NEW_PASSWORD_VARIABLE = "HEADRACE_NEW_PASSWORD"  # noqa: S105 - the name of one

users = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Add, list and remove users.")
acls = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Allow and deny access; list permissions."
)

UserName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Edit the data directory of a stopped broker, instead of connecting to a running one.",
    ),
]


# --- users --------------------------------------------------------------------------------------


@users.command("add")
def add_user(
    name: UserName,
    data: DataOption = None,
    new_password_file: Annotated[
        str | None,
        typer.Option(
            "--new-password-file",
            metavar="FILE",
            help=f"File with the new user's password, or - for standard input."
            f" Default: {NEW_PASSWORD_VARIABLE}, or ask.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Add a user, or change a user's password."""
    _check_user_name(name)
    password = _new_password(name, new_password_file)
    if data is not None:
        from headrace.broker.access import add_user as offline_add_user

        offline_add_user(data, name, password)
    else:
        changes = [_upsertion(name, mechanism, password) for mechanism in _mechanisms()]
        _alter(bootstrap, f"adding user {name!r}", name, changes)
    Output(as_json=as_json).document(
        {"user": name, "added": True}, lambda _: f"user {name} can log in with this password"
    )


def _check_user_name(name: str) -> None:
    if not 0 < len(name) <= 256 or not name.isprintable():
        raise UsageError("a user name must have 1 to 256 printable characters")


def _new_password(name: str, path: str | None) -> str:
    if path is not None:
        return read_password_or_stdin(path)
    if os.environ.get(NEW_PASSWORD_VARIABLE):
        return os.environ[NEW_PASSWORD_VARIABLE]
    if not sys.stdin.isatty():
        raise UsageError(
            f"no password for {name}: pass --new-password-file FILE, or set {NEW_PASSWORD_VARIABLE}"
        )
    password = getpass(f"New password of {name}: ")
    if not password or password != getpass("Repeat password: "):
        raise UsageError("the passwords are empty or do not match; nothing was changed")
    return password


def _mechanisms() -> list[Any]:
    return [kafka.ScramMechanism.SCRAM_SHA_256, kafka.ScramMechanism.SCRAM_SHA_512]


def _upsertion(name: str, mechanism: Any, password: str) -> Any:
    info = kafka.ScramCredentialInfo(mechanism, ITERATIONS)
    return kafka.UserScramCredentialUpsertion(name, info, password.encode())


def _alter(bootstrap: str, doing: str, name: str, changes: list[Any]) -> None:
    client = new_admin(bootstrap)
    _require_on_cluster(client, "ALTER", doing, bootstrap)
    with explained(doing, bootstrap):
        client.alter_user_scram_credentials(changes, request_timeout=ANSWER_TIMEOUT_S)[name].result()


@users.command("list")
def list_users(
    data: DataOption = None, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False
) -> None:
    """List users and their login mechanisms."""
    if data is not None:
        from headrace.broker.access import list_users as offline_list_users

        found = offline_list_users(data)
    else:
        found = _listed(bootstrap)
    listed = [
        {"user": name, "mechanisms": [{"mechanism": each, "iterations": count} for each, count in held]}
        for name, held in found.items()
    ]
    Output(as_json=as_json).document({"users": listed}, _render_users)


def _require_on_cluster(client: Any, operation: str, doing: str, bootstrap: str) -> None:
    """Raises RequestError unless the broker lets the user do this.

    Asked beforehand because librdkafka 2.16 takes a refused list of users badly (it crashes)
    and that of permissions for an empty one.
    """
    with explained(doing, bootstrap):
        asked = client.describe_cluster(include_authorized_operations=True, request_timeout=ANSWER_TIMEOUT_S)
        allowed = asked.result().authorized_operations
    if kafka.AclOperation[operation] not in (allowed or ()):
        raise RequestError(
            f"{doing}: not allowed; this user needs {operation.lower()} on the cluster,"
            " which an administrator can grant with `headrace acls add`"
        )


def _listed(bootstrap: str) -> dict[str, list[tuple[str, int]]]:
    client = new_admin(bootstrap)
    _require_on_cluster(client, "DESCRIBE", "listing users", bootstrap)
    with explained("listing users", bootstrap):
        asked: Any = client.describe_user_scram_credentials(request_timeout=ANSWER_TIMEOUT_S)
        found = asked.result()
    return {
        name: [
            (info.mechanism.name.replace("_", "-"), info.iterations)
            for info in described.scram_credential_infos
        ]
        for name, described in sorted(found.items())
    }


def _render_users(data: dict[str, Any]) -> str:
    rows = [
        [each["user"], ", ".join(how["mechanism"] for how in each["mechanisms"])] for each in data["users"]
    ]
    return table_text(["user", "mechanisms"], rows) if rows else "no users"


@users.command("remove")
def remove_user(
    name: UserName,
    data: DataOption = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Remove a user and close their connections."""
    if not yes:
        require_confirmation(f"user {name} will no longer be able to log in", name)
    if data is not None:
        from headrace.broker.access import remove_user as offline_remove_user

        if not offline_remove_user(data, name):
            raise RequestError(f"there is no user {name!r}; see `headrace users list`")
    else:
        held = {mechanism for mechanism, _ in _listed(bootstrap).get(name, ())}
        if not held:
            raise RequestError(f"there is no user {name!r}; see `headrace users list`")
        going = [each for each in _mechanisms() if each.name.replace("_", "-") in held]
        changes = [kafka.UserScramCredentialDeletion(name, each) for each in going]
        _alter(bootstrap, f"removing user {name!r}", name, changes)
    Output(as_json=as_json).document({"user": name, "removed": True}, lambda _: f"removed user {name}")


# --- permissions --------------------------------------------------------------------------------

PrincipalArgument = Annotated[str, typer.Argument(metavar="USER", help="User, or * for everyone.")]
Operations = Annotated[
    list[str] | None,
    typer.Option(
        "--operation",
        "-o",
        metavar="NAME",
        help="all, read, write, create, delete, alter, describe, describe_configs, alter_configs,"
        " idempotent_write; can be repeated.",
    ),
]
TopicNames = Annotated[
    list[str] | None, typer.Option("--topic", "-t", metavar="NAME", help="Topic, or *; can be repeated.")
]
GroupNames = Annotated[
    list[str] | None, typer.Option("--group", "-g", metavar="NAME", help="Group, or *; can be repeated.")
]
TransactionalIds = Annotated[
    list[str] | None,
    typer.Option("--transactional-id", metavar="NAME", help="Transactional id, or *; can be repeated."),
]
OnCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Prefix = Annotated[bool, typer.Option("--prefix", help="Treat the names as prefixes.")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny instead of allow; deny takes precedence.")]
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Only from this address.")]


def _resources(
    topic: list[str] | None, group: list[str] | None, transactional_id: list[str] | None, cluster: bool
) -> list[tuple[Any, str]]:
    kinds = kafka.ResourceType
    found = [(kinds.TOPIC, name) for name in topic or ()]
    found += [(kinds.GROUP, name) for name in group or ()]
    found += [(kinds.TRANSACTIONAL_ID, name) for name in transactional_id or ()]
    return found + ([(kinds.BROKER, "kafka-cluster")] if cluster else [])


def _operation(name: str) -> Any:
    wanted = name.upper().replace("-", "_")
    if wanted in ("UNKNOWN", "ANY") or wanted not in kafka.AclOperation.__members__:
        raise UsageError(f"--operation {name}: see the list in `headrace acls add --help`")
    return kafka.AclOperation[wanted]


def _bindings(
    principal: str,
    operations: list[str] | None,
    resources: list[tuple[Any, str]],
    prefix: bool,
    deny: bool,
    host: str,
) -> list[Any]:
    if not operations or not resources:
        raise UsageError("pass --operation, and one of --topic, --group, --transactional-id or --cluster")
    patterns, permissions = kafka.ResourcePatternType, kafka.AclPermissionType
    return [
        kafka.AclBinding(
            kind,
            name,
            patterns.PREFIXED if prefix and kind is not kafka.ResourceType.BROKER else patterns.LITERAL,
            _principal(principal),
            host,
            _operation(operation),
            permissions.DENY if deny else permissions.ALLOW,
        )
        for kind, name in resources
        for operation in operations
    ]


def _principal(user: str) -> str:
    return user if user.startswith("User:") else f"User:{user}"


@acls.command("add")
def add_acls(
    principal: PrincipalArgument,
    operation: Operations = None,
    topic: TopicNames = None,
    group: GroupNames = None,
    transactional_id: TransactionalIds = None,
    cluster: OnCluster = False,
    prefix: Prefix = False,
    deny: Deny = False,
    host: Host = "*",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Allow (or deny) a user operations on resources."""
    bindings = _bindings(
        principal, operation, _resources(topic, group, transactional_id, cluster), prefix, deny, host
    )
    client = new_admin(bootstrap)
    with explained("adding permissions", bootstrap):
        for done in client.create_acls(bindings, request_timeout=ANSWER_TIMEOUT_S).values():
            done.result()
    _show(bindings, as_json)


@acls.command("remove")
def remove_acls(
    principal: PrincipalArgument,
    operation: Operations = None,
    topic: TopicNames = None,
    group: GroupNames = None,
    transactional_id: TransactionalIds = None,
    cluster: OnCluster = False,
    prefix: Prefix = False,
    deny: Deny = False,
    host: Host = "*",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Remove permissions, named as they were added."""
    bindings = _bindings(
        principal, operation, _resources(topic, group, transactional_id, cluster), prefix, deny, host
    )
    filters = [
        kafka.AclBindingFilter(
            each.restype,
            each.name,
            each.resource_pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for each in bindings
    ]
    client = new_admin(bootstrap)
    with explained("removing permissions", bootstrap):
        answers = client.delete_acls(filters, request_timeout=ANSWER_TIMEOUT_S).values()
        gone = [each for done in answers for each in done.result()]
    if not gone:
        raise RequestError("there are no such permissions; see `headrace acls list`")
    _show(gone, as_json)


@acls.command("list")
def list_acls(
    of: Annotated[
        str | None, typer.Option("--of", metavar="USER", help="Only permissions of this user.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List permissions."""
    any_kind = kafka.AclBindingFilter(
        kafka.ResourceType.ANY,
        None,
        kafka.ResourcePatternType.ANY,
        None if of is None else _principal(of),
        None,
        kafka.AclOperation.ANY,
        kafka.AclPermissionType.ANY,
    )
    client = new_admin(bootstrap)
    _require_on_cluster(client, "DESCRIBE", "listing permissions", bootstrap)
    with explained("listing permissions", bootstrap):
        found = client.describe_acls(any_kind, request_timeout=ANSWER_TIMEOUT_S).result()
    _show(found, as_json)


def _show(bindings: list[Any], as_json: bool) -> None:
    listed = sorted((_described(each) for each in bindings), key=lambda each: tuple(each.values()))
    Output(as_json=as_json).document({"acls": listed}, _render_acls)


def _described(binding: Any) -> dict[str, str]:
    kind = binding.restype.name.lower()
    return {
        "user": binding.principal,
        "permission": binding.permission_type.name.lower(),
        "operation": binding.operation.name.lower(),
        "resource": "cluster" if kind == "broker" else kind,
        "name": binding.name,
        "pattern": binding.resource_pattern_type.name.lower(),
        "host": binding.host,
    }


def _render_acls(data: dict[str, Any]) -> str:
    rows = [list(each.values()) for each in data["acls"]]
    columns = ["user", "permission", "operation", "resource", "name", "pattern", "host"]
    return (
        table_text(columns, rows)
        if rows
        else "no permissions; where users must log in, only super users may do anything"
    )
