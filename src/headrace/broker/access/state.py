"""Users and access control entries as one value, and its bytes in `access.json`.

The file is JSON with a SHA-256 of its contents, and small: it is written
whole. It holds no password, only what SCRAM needs to check one.
"""

import base64
import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from headrace.broker.access.acls import Acl
from headrace.broker.access.decoys import Decoys
from headrace.broker.access.scram import Credential, Mechanism

__all__ = ["AccessState", "DamagedError", "decode", "encode"]

FORMAT_VERSION = 1
Credentials = Mapping[str, Mapping[Mechanism, Credential]]


class DamagedError(ValueError):
    """The bytes are not what `encode` wrote; the message says in what way."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AccessState:
    """Who there is and who may do what. A change makes a new one."""

    users: Credentials = dataclasses.field(default_factory=dict)
    acls: frozenset[Acl] = frozenset()
    decoy_secret: bytes = dataclasses.field(repr=False)
    decoys: Decoys = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoys", Decoys(self.users, self.decoy_secret))

    def with_credential(self, user: str, credential: Credential) -> "AccessState":
        kept = {**self.users.get(user, {}), credential.mechanism: credential}
        return dataclasses.replace(self, users={**self.users, user: kept})

    def without_credential(self, user: str, mechanism: Mechanism) -> "AccessState":
        """A user without credentials is gone."""
        kept = {each: held for each, held in self.users.get(user, {}).items() if each != mechanism}
        others = {name: held for name, held in self.users.items() if name != user}
        return dataclasses.replace(self, users={**others, user: kept} if kept else others)

    def with_acls(self, acls: frozenset[Acl]) -> "AccessState":
        return dataclasses.replace(self, acls=acls)


def encode(state: AccessState) -> bytes:
    """The file's bytes."""
    contents = {
        "decoy_secret": _text(state.decoy_secret),
        "users": {
            name: [_described(held[mechanism]) for mechanism in sorted(held)]
            for name, held in sorted(state.users.items())
        },
        "acls": [dataclasses.astuple(acl) for acl in sorted(state.acls)],
    }
    document = {"format_version": FORMAT_VERSION, "sha256": _checksum(contents), "contents": contents}
    return json.dumps(document, indent=1).encode() + b"\n"


def decode(data: bytes) -> AccessState:
    """What `encode` wrote; raises DamagedError."""
    try:
        document = json.loads(data)
        version = document["format_version"]
        if version != FORMAT_VERSION:
            raise DamagedError(f"format version {version}, this Headrace reads {FORMAT_VERSION}")
        contents = document["contents"]
        if document["sha256"] != _checksum(contents):
            raise DamagedError("the checksum does not fit")
        return _state(contents)
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, DamagedError):
            raise
        raise DamagedError("not a file of users and permissions") from None


def _checksum(contents: Any) -> str:
    canonical = json.dumps(contents, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(canonical).hexdigest()


def _state(contents: Mapping[str, Any]) -> AccessState:
    users = {
        name: {each.mechanism: each for each in map(_credential, held)}
        for name, held in contents["users"].items()
    }
    return AccessState(
        users=users,
        acls=frozenset(Acl(*fields) for fields in contents["acls"]),
        decoy_secret=base64.b64decode(contents["decoy_secret"]),
    )


def _described(credential: Credential) -> dict[str, Any]:
    return {
        "mechanism": credential.mechanism.sasl_name,
        "iterations": credential.iterations,
        "salt": _text(credential.salt),
        "stored_key": _text(credential.stored_key),
        "server_key": _text(credential.server_key),
    }


def _credential(fields: Mapping[str, Any]) -> Credential:
    return Credential(
        mechanism=Mechanism[fields["mechanism"].replace("-", "_")],
        iterations=int(fields["iterations"]),
        salt=base64.b64decode(fields["salt"]),
        stored_key=base64.b64decode(fields["stored_key"]),
        server_key=base64.b64decode(fields["server_key"]),
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
