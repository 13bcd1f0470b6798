import json

from headrace.console.push.event_stream import HEARTBEAT, StreamEvent


def test_an_event_is_one_block_whatever_line_breaks_its_json_has():
    text = StreamEvent("records", b'{"a":\r\n [1,\n2]}', "0:7").as_text().decode()
    assert text == 'event: records\nid: 0:7\ndata: {"a":   [1, 2]}\n\n'


def test_a_sign_of_life_is_a_comment():
    assert HEARTBEAT.as_text().startswith(b":")


def test_a_message_is_the_same_event_as_one_object():
    assert json.loads(StreamEvent("records", b'{"a":1}', "0:7").as_message()) == {
        "id": "0:7",
        "event": "records",
        "a": 1,
    }
    assert json.loads(StreamEvent("end", b"{}", "").as_message()) == {"id": "", "event": "end"}
