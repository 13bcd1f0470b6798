"""Cases of configurations: where values come from, changing them, refusals."""

from headrace.wire import Api
from parity.case import case
from parity.stage import code, wait_until
from parity.topics import wait_described

DESCRIBE, ALTER = "describe configs", "alter configs"
TOPIC, BROKER = 2, 4
SET, REMOVE, APPEND, SUBTRACT = 0, 1, 2, 3


def describe(log, name, *keys, kind=TOPIC, **options):
    """Code, and of each setting its value, source, and whether it is read-only or secret."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    (found,) = log.ask(Api.DESCRIBE_CONFIGS, 4, {"resources": [resource], **options}).results
    return [
        code(found.error_code),
        sorted(
            [each.name, each.value, each.config_source, each.read_only, each.is_sensitive, each.config_type]
            for each in found.configs
        ),
    ]


def alter(log, name, *changes, kind=TOPIC, validate_only=False):
    rows = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
    fields = {"resources": [{"resource_type": kind, "resource_name": name, "configs": rows}]}
    answer = log.ask(Api.INCREMENTAL_ALTER_CONFIGS, 1, {**fields, "validate_only": validate_only})
    return code(answer.responses[0].error_code)


def value(log, name, key, expected=None):
    """A setting's value; Kafka's may follow a change a moment later."""
    return wait_until(
        lambda: [each[1:3] for each in describe(log, name, key)[1]],
        lambda found: expected is None or found == [expected],
    )


@case(DESCRIBE, "a topic's own value and a default, with type and source")
def described(log):
    name = log.topic(retention_ms=5000)
    wait_described(log, name, ["NONE", 1])
    return describe(
        log, name, "retention.ms", "cleanup.policy", "max.message.bytes", "min.cleanable.dirty.ratio"
    )


@case(DESCRIBE, "unknown keys are left out")
def no_such_key(log):
    return describe(log, log.topic(), "no.such.thing")


@case(DESCRIBE, "an unknown topic, an invalid name, an unknown kind of resource")
def unknown(log):
    return [
        describe(log, log.fresh("missing"), "retention.ms"),
        describe(log, "a b", "retention.ms"),
        describe(log, "x", "y", kind=99),
    ]


@case(DESCRIBE, "an unknown broker is INVALID_REQUEST")
def unknown_broker(log):
    return [describe(log, name, "no.such.thing", kind=BROKER) for name in ("1", "7", "seven")]


@case(DESCRIBE, "the settings that both know have the same defaults")
def defaults(log):
    name = log.topic()
    (found,) = log.ask(
        Api.DESCRIBE_CONFIGS,
        4,
        {"resources": [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}]},
    ).results
    same = ("cleanup.policy", "compression.type", "delete.retention.ms", "file.delete.delay.ms")
    same += ("max.message.bytes", "message.timestamp.type", "min.cleanable.dirty.ratio")
    same += ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
    same += ("min.insync.replicas", "retention.bytes", "retention.ms", "segment.bytes", "segment.ms")
    return sorted([each.name, each.value, each.config_type] for each in found.configs if each.name in same)


@case(
    DESCRIBE,
    "an index entry every 4096 bytes, and syncs left to the system",
    differs="the index is sparser (16384), as look-ups read ahead anyway; every acknowledged batch is synced",
)
def other_defaults(log):
    return [value(log, log.topic(), key) for key in ("index.interval.bytes", "flush.messages")]


@case(DESCRIBE, "synonyms: where else the value could come from")
def synonyms(log):
    found = []
    for name in (log.topic(), log.topic(cleanup_policy="compact")):
        wait_described(log, name, ["NONE", 1])
        resource = {"resource_type": TOPIC, "resource_name": name, "configuration_keys": ["cleanup.policy"]}
        answer = log.ask(
            Api.DESCRIBE_CONFIGS, 4, {"resources": [resource], "include_synonyms": True}
        ).results[0]
        found.append([[each.name, each.value, each.source] for each in answer.configs[0].synonyms])
    return found


@case(ALTER, "set, then remove: the default is back")
def set_and_remove(log):
    name = log.topic()
    return [
        alter(log, name, ("retention.ms", SET, "1234")),
        value(log, name, "retention.ms", ["1234", 1]),
        alter(log, name, ("retention.ms", REMOVE, None)),
        value(log, name, "retention.ms", ["604800000", 5]),
    ]


@case(ALTER, "append to and subtract from a list")
def lists(log):
    name = log.topic()
    return [
        alter(log, name, ("cleanup.policy", APPEND, "compact")),
        value(log, name, "cleanup.policy", ["delete,compact", 1]),
        alter(log, name, ("cleanup.policy", APPEND, "compact")),
        alter(log, name, ("cleanup.policy", SUBTRACT, "delete")),
        value(log, name, "cleanup.policy", ["compact", 1]),
        alter(log, name, ("cleanup.policy", SUBTRACT, "nothing")),
    ]


@case(ALTER, "appending to a setting that is not a list is INVALID_CONFIG")
def no_list(log):
    name = log.topic()
    return [alter(log, name, ("retention.ms", how, "1")) for how in (APPEND, SUBTRACT)]


@case(ALTER, "invalid values and unknown settings are INVALID_CONFIG")
def bad_values(log):
    name = log.topic()
    changes = (
        ("retention.ms", "soon"),
        ("cleanup.policy", "burn"),
        ("no.such.thing", "1"),
        ("segment.bytes", "1"),
    )
    return [alter(log, name, (key, SET, new)) for key, new in changes]


@case(ALTER, "setting nothing, naming a setting twice, and a setting without a name")
def bad_requests(log):
    name = log.topic()
    return [
        alter(log, name, ("retention.ms", SET, None)),
        alter(log, name, ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
        alter(log, name, ("", SET, "1")),
        value(log, name, "retention.ms"),
    ]


@case(
    ALTER,
    "an unknown operation",
    differs="Headrace answers INVALID_REQUEST, Kafka UNKNOWN_SERVER_ERROR",
)
def bad_operation(log):
    return alter(log, log.topic(), ("retention.ms", 9, "1"))


@case(ALTER, "one bad setting fails the whole change")
def all_or_nothing(log):
    name = log.topic()
    answer = alter(log, name, ("retention.ms", SET, "1234"), ("cleanup.policy", SET, "burn"))
    return [answer, value(log, name, "retention.ms")]


@case(ALTER, "validate_only changes nothing")
def validated(log):
    name = log.topic()
    return [
        alter(log, name, ("retention.ms", SET, "1234"), validate_only=True),
        alter(log, name, ("retention.ms", SET, "soon"), validate_only=True),
        value(log, name, "retention.ms"),
    ]


@case(ALTER, "an unknown topic is UNKNOWN_TOPIC_OR_PARTITION")
def alter_unknown(log):
    return alter(log, log.fresh("missing"), ("retention.ms", SET, "1"))


@case(ALTER, "removing what was never set changes nothing")
def remove_unset(log):
    name = log.topic()
    return [alter(log, name, ("retention.ms", REMOVE, None)), value(log, name, "retention.ms")]


@case(ALTER, "the older AlterConfigs replaces everything that was set")
def replaced(log):
    name = log.topic(retention_ms=1234)
    rows = [{"name": "cleanup.policy", "value": "compact"}]
    fields = {"resources": [{"resource_type": TOPIC, "resource_name": name, "configs": rows}]}
    answer = log.ask(Api.ALTER_CONFIGS, 2, fields).responses[0]
    return [
        code(answer.error_code),
        value(log, name, "cleanup.policy", ["compact", 1]),
        value(log, name, "retention.ms", ["604800000", 5]),
    ]


@case(
    ALTER,
    "a broker's settings can be changed while it runs",
    differs="a broker's settings are fixed when it starts",
)
def broker(log):
    return alter(log, "1", ("log.cleaner.threads", SET, "1"), kind=BROKER)
