"""Members of groups in plain requests, for cases of groups and of offsets in transactions."""

from headrace.wire import Api
from parity.stage import code

__all__ = ["Member", "commit", "committed", "joined", "subscription"]


def subscription(topic):
    """What a consumer tells its group: version 0, one topic, no data of the user's."""
    return b"\0\0" + b"\0\0\0\1" + len(topic).to_bytes(2, "big") + topic.encode() + b"\xff\xff\xff\xff"


class Member:
    """A member of a classic group on a connection of its own, so that its join may wait."""

    def __init__(self, log, group, *, instance=None, protocols=("range",), **options):
        self.log, self.group, self.instance, self.protocols = log, group, instance, protocols
        self.options = {
            "session_timeout": 30_000,
            "rebalance_timeout": 20_000,
            "protocol_type": "consumer",
            **options,
        }
        self.peer = log.connect()
        self.id, self.generation, self.leader, self.members = "", -1, "", []
        self.metadata = subscription("some-topic")

    def fields(self):
        rows = [{"name": name, "metadata": self.metadata} for name in self.protocols]
        return {
            "group_id": self.group,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "protocols": rows,
            **self.options,
        }

    def ask(self, api, version, fields):
        return self.peer.request(api, version, fields)

    def join(self):
        """Joins, with the id it is given first if need be; the answer's code."""
        answer = self.log.settled(lambda: self.ask(Api.JOIN_GROUP, 9, self.fields()))
        if code(answer.error_code) == "MEMBER_ID_REQUIRED":
            self.id = answer.member_id
            answer = self.ask(Api.JOIN_GROUP, 9, self.fields())
        return self._joined(answer)

    def start_join(self):
        """Sends the request and does not wait."""
        if not self.id and self.instance is None:
            self.id = self.ask(Api.JOIN_GROUP, 9, self.fields()).member_id
        self.peer.send_only(Api.JOIN_GROUP, 9, self.fields())

    def end_join(self):
        return self._joined(self.peer.receive(Api.JOIN_GROUP, 9))

    def _joined(self, answer):
        if answer.error_code == 0:
            self.id, self.generation, self.leader = answer.member_id, answer.generation_id, answer.leader
            self.members = [each.member_id for each in answer.members]
        return code(answer.error_code)

    def sync(self, generation=None, member=None, assignments=None, **options):
        given = [(each, b"share") for each in self.members] if assignments is None else assignments
        fields = {
            "group_id": self.group,
            "generation_id": self.generation if generation is None else generation,
            "member_id": self.id if member is None else member,
            "group_instance_id": self.instance,
            "assignments": [{"member_id": each, "assignment": share} for each, share in given],
            **options,
        }
        answer = self.ask(
            Api.SYNC_GROUP, 5, {"protocol_type": "consumer", "protocol_name": "range", **fields}
        )
        return [code(answer.error_code), bytes(answer.assignment).decode(errors="replace")]

    def heartbeat(self, generation=None, member=None, group=None):
        fields = {
            "group_id": self.group if group is None else group,
            "generation_id": self.generation if generation is None else generation,
            "member_id": self.id if member is None else member,
            "group_instance_id": self.instance,
        }
        return code(self.ask(Api.HEARTBEAT, 4, fields).error_code)

    def leave(self, member=None, instance=None):
        row = {"member_id": self.id if member is None else member, "group_instance_id": instance}
        answer = self.ask(Api.LEAVE_GROUP, 5, {"group_id": self.group, "members": [row]})
        return [code(answer.error_code), [code(each.error_code) for each in answer.members]]


def joined(log, group=None, **options):
    """The only member of a stable group."""
    member = Member(log, group or log.fresh("group"), **options)
    assert member.join() == "NONE"
    assert member.sync()[0] == "NONE"
    return member


def commit(log, group, topic, offset=5, *, generation=-1, member="", instance=None, metadata="", partition=0):
    part = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "group_instance_id": instance,
        "topics": [{"name": topic, "partitions": [part]}],
    }
    return code(log.ask(Api.OFFSET_COMMIT, 9, fields).topics[0].partitions[0].error_code)


def committed(log, group, topic, *, member=None, epoch=-1, require_stable=False, partition=0):
    """Codes of group and partition, offset and metadata."""
    row = {"group_id": group, "member_id": member, "member_epoch": epoch}
    row["topics"] = [{"name": topic, "partition_indexes": [partition]}]
    (found,) = log.ask(Api.OFFSET_FETCH, 9, {"groups": [row], "require_stable": require_stable}).groups
    parts = [
        [code(part.error_code), part.committed_offset, part.metadata]
        for each in found.topics
        for part in each.partitions
    ]
    return [code(found.error_code), parts]
