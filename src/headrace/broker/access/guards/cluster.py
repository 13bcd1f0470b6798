"""Guards of the cluster: configurations, disks, users, permissions, quotas; and of transactions."""

from typing import Any

from headrace.broker.access.acls import CLUSTER_NAME, Operation, Resource
from headrace.broker.access.guards.ruling import CODES, Guard, GuardedRequest, PartitionFields, Ruling, split
from headrace.wire import Api, ErrorCode

__all__ = ["CLUSTER_GUARDS"]

DENIED = CODES[Resource.CLUSTER]
TRANSACTION_DENIED = CODES[Resource.TRANSACTIONAL_ID]
MESSAGE = "not allowed for this user"
REFUSED: dict[str, Any] = {"error_code": DENIED, "error_message": MESSAGE}
CONFIG_RESOURCES = {
    2: Resource.TOPIC,
    4: Resource.CLUSTER,  # a broker
    8: Resource.CLUSTER,  # a broker's loggers
    16: Resource.CLUSTER,  # client metrics
    32: Resource.GROUP,
}


def open_to_all(asked: GuardedRequest) -> Ruling:  # noqa: ARG001 - a guard's form
    """Nothing is required."""
    return Ruling()


def on_cluster(operation: Operation, refusal: dict[str, Any]) -> Guard:
    """The operation on the cluster."""

    def guard(asked: GuardedRequest) -> Ruling:
        return Ruling() if asked.session.may_on_cluster(operation) else Ruling(refusal=dict(refusal))

    return guard


def each_on_cluster(operation: Operation, items: str, into: str) -> Guard:
    """The operation on the cluster, refused once for each item of the request."""

    def guard(asked: GuardedRequest) -> Ruling:
        if asked.session.may_on_cluster(operation):
            return Ruling()
        return Ruling(refusal={into: [dict(REFUSED) for _ in getattr(asked.body, items)]})

    return guard


def describe_cluster(asked: GuardedRequest) -> Ruling:
    """Open to all; tells what the caller may do."""

    def edit(answer: dict[str, Any]) -> None:
        if asked.body.include_cluster_authorized_operations:
            bits = asked.session.allowed_bits(Resource.CLUSTER, CLUSTER_NAME)
            answer["cluster_authorized_operations"] = bits

    return Ruling(edit=edit)


def configs(operation: Operation, into: str) -> Guard:
    """The operation on each topic, group, or (for a broker) on the cluster."""

    def may(asked: GuardedRequest, wanted: Any) -> bool:
        resource = CONFIG_RESOURCES.get(wanted.resource_type)
        if resource is None:  # nothing has such configurations, and the handler says so
            return True
        name = CLUSTER_NAME if resource is Resource.CLUSTER else wanted.resource_name
        return asked.session.may(operation, resource, name)

    def guard(asked: GuardedRequest) -> Ruling:
        body = asked.body
        body.resources, denied = split(body.resources, lambda wanted: may(asked, wanted))
        return Ruling(into=into, refused=[_refused_config(wanted) for wanted in denied])

    return guard


def _refused_config(wanted: Any) -> dict[str, Any]:
    return {
        "resource_type": wanted.resource_type,
        "resource_name": wanted.resource_name,
        "error_code": CODES[CONFIG_RESOURCES[wanted.resource_type]],
        "error_message": MESSAGE,
    }


def describe_users(asked: GuardedRequest) -> Ruling:
    """Refused at the top, and for each user named: clients look at either place."""
    if asked.session.may_on_cluster(Operation.DESCRIBE):
        return Ruling()
    results = [{"user": user.name, **REFUSED} for user in asked.body.users or ()]
    return Ruling(refusal={**REFUSED, "results": results})


def alter_users(asked: GuardedRequest) -> Ruling:
    if asked.session.may_on_cluster(Operation.ALTER):
        return Ruling()
    names = dict.fromkeys(each.name for each in (*asked.body.deletions, *asked.body.upsertions))
    return Ruling(refusal={"results": [{"user": name, **REFUSED} for name in names]})


# --- transactions -------------------------------------------------------------------------------

ADDED = PartitionFields(
    items="v3_and_below_topics",
    into="results_by_topic_v3_and_below",
    out_parts="results_by_partition",
    out_code="partition_error_code",
)
OFFSETS = PartitionFields()


def _may_write(asked: GuardedRequest, transactional_id: str) -> bool:
    return asked.session.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)


def init_producer_id(asked: GuardedRequest) -> Ruling:
    """Writing on the transactional id; without one, on some topic or idempotently on the cluster."""
    session, transactional_id = asked.session, asked.body.transactional_id
    if transactional_id is not None:
        allowed, code = _may_write(asked, transactional_id), TRANSACTION_DENIED
    else:
        allowed = session.may_somewhere(Operation.WRITE, Resource.TOPIC) or session.may_on_cluster(
            Operation.IDEMPOTENT_WRITE
        )
        code = DENIED
    return Ruling() if allowed else Ruling(refusal={"error_code": code})


def add_partitions(asked: GuardedRequest) -> Ruling:
    """All or nothing: one forbidden topic and no partition is added. Version 4 is for brokers."""
    if asked.request.api_version >= 4:
        allowed = asked.session.may_on_cluster(Operation.CLUSTER_ACTION)
        return Ruling() if allowed else Ruling(refusal={"error_code": DENIED})
    if not _may_write(asked, asked.body.v3_and_below_transactional_id):
        return ADDED.all(asked, TRANSACTION_DENIED)
    allowed_topics, denied = ADDED.divided(asked, Operation.WRITE)
    if not denied:
        return Ruling()
    refusals = ADDED.refusals(denied, CODES[Resource.TOPIC])
    refusals += ADDED.refusals(allowed_topics, int(ErrorCode.operation_not_attempted))
    return Ruling(refusal={ADDED.into: refusals})


def add_offsets(asked: GuardedRequest) -> Ruling:
    if not _may_write(asked, asked.body.transactional_id):
        return Ruling(refusal={"error_code": TRANSACTION_DENIED})
    if not asked.session.may(Operation.READ, Resource.GROUP, asked.body.group_id):
        return Ruling(refusal={"error_code": CODES[Resource.GROUP]})
    return Ruling()


def end_transaction(asked: GuardedRequest) -> Ruling:
    if _may_write(asked, asked.body.transactional_id):
        return Ruling()
    return Ruling(refusal={"error_code": TRANSACTION_DENIED})


def commit_offsets(asked: GuardedRequest) -> Ruling:
    if not _may_write(asked, asked.body.transactional_id):
        return OFFSETS.all(asked, TRANSACTION_DENIED)
    if not asked.session.may(Operation.READ, Resource.GROUP, asked.body.group_id):
        return OFFSETS.all(asked, CODES[Resource.GROUP])
    return OFFSETS.each(asked, Operation.READ)


def describe_transactions(asked: GuardedRequest) -> Ruling:
    body, session = asked.body, asked.session
    body.transactional_ids, denied = split(
        body.transactional_ids,
        lambda each: session.may(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, each),
    )

    def edit(answer: dict[str, Any]) -> None:
        for state in answer["transaction_states"]:
            state["topics"] = [
                topic
                for topic in state.get("topics", ())
                if session.sees(Operation.DESCRIBE, Resource.TOPIC, topic["topic"])
            ]

    refused = [{"transactional_id": each, "error_code": TRANSACTION_DENIED} for each in denied]
    return Ruling(into="transaction_states", refused=refused, edit=edit)


def list_transactions(asked: GuardedRequest) -> Ruling:
    def edit(answer: dict[str, Any]) -> None:
        answer["transaction_states"] = [
            state
            for state in answer.get("transaction_states", ())
            if asked.session.sees(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, state["transactional_id"])
        ]

    return Ruling(edit=edit)


ALTER, DESCRIBE = Operation.ALTER, Operation.DESCRIBE
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS

CLUSTER_GUARDS: dict[int, Guard] = {
    Api.SASL_HANDSHAKE: open_to_all,  # SASL, which comes before anybody is known
    Api.API_VERSIONS: open_to_all,
    Api.INIT_PRODUCER_ID: init_producer_id,
    Api.ADD_PARTITIONS_TO_TXN: add_partitions,
    Api.ADD_OFFSETS_TO_TXN: add_offsets,
    Api.END_TXN: end_transaction,
    Api.TXN_OFFSET_COMMIT: commit_offsets,
    Api.DESCRIBE_ACLS: on_cluster(DESCRIBE, REFUSED),
    Api.CREATE_ACLS: each_on_cluster(ALTER, "creations", "results"),
    Api.DELETE_ACLS: each_on_cluster(ALTER, "filters", "filter_results"),
    Api.DESCRIBE_CONFIGS: configs(DESCRIBE_CONFIGS, "results"),
    Api.ALTER_CONFIGS: configs(ALTER_CONFIGS, "responses"),
    Api.DESCRIBE_LOG_DIRS: on_cluster(DESCRIBE, {"error_code": DENIED, "results": []}),
    Api.SASL_AUTHENTICATE: open_to_all,
    Api.INCREMENTAL_ALTER_CONFIGS: configs(ALTER_CONFIGS, "responses"),
    Api.DESCRIBE_CLIENT_QUOTAS: on_cluster(DESCRIBE_CONFIGS, {**REFUSED, "entries": None}),
    Api.ALTER_CLIENT_QUOTAS: each_on_cluster(ALTER_CONFIGS, "entries", "entries"),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_users,
    Api.ALTER_USER_SCRAM_CREDENTIALS: alter_users,
    Api.DESCRIBE_CLUSTER: describe_cluster,
    Api.DESCRIBE_TRANSACTIONS: describe_transactions,
    Api.LIST_TRANSACTIONS: list_transactions,
    Api.LIST_CONFIG_RESOURCES: on_cluster(DESCRIBE_CONFIGS, {"error_code": DENIED}),
}
