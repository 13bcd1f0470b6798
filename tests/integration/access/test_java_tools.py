"""Kafka's own command-line tools, and so Java's clients, on a broker that wants a login over TLS."""

import subprocess

import pytest

from headrace.java import find_java
from headrace.testing.kafka import PeerUnavailable, fetch_kafka

pytestmark = pytest.mark.kafka

LOGIN_MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-512": "scram.ScramLoginModule"}


@pytest.fixture(scope="module")
def jars():
    try:
        return fetch_kafka()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def tool(secured, jars, tmp_path):
    """Runs a tool as a user; what it printed."""

    def run(main, user, *arguments, mechanism="SCRAM-SHA-512", password=None, stdin="", expect=0):
        login = tmp_path / "login.properties"
        given = secured.as_user(user, password)["sasl.password"]
        login.write_text(
            "security.protocol=SASL_SSL\n"
            f"sasl.mechanism={mechanism}\n"
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={secured.pki.ca}\n"
            f"sasl.jaas.config=org.apache.kafka.common.security.{LOGIN_MODULES[mechanism]} required"
            f' username="{user}" password="{given}";\n'
        )
        quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]  # each lives for a second or two
        command = [str(find_java().runtime / "bin" / "java"), *quick, "-cp", f"{jars}/*", main]
        command += ["--bootstrap-server", secured.bootstrap, "--command-config", str(login), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=90)
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout

    return run


def test_java_clients_log_in_are_allowed_write_and_read(tool, topic):
    allow = ["--add", "--allow-principal", "User:alice", "--operation", "All", "--topic", topic]
    tool("org.apache.kafka.tools.AclCommand", "admin", *allow, "--group", topic)
    listed = tool("org.apache.kafka.tools.AclCommand", "admin", "--list", "--topic", topic)
    assert "principal=User:alice" in listed and "permissionType=ALLOW" in listed
    producer = "org.apache.kafka.tools.ConsoleProducer"
    tool(producer, "alice", "--topic", topic, stdin="one\ntwo\n", mechanism="PLAIN")
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    wanted = ["--topic", topic, "--group", topic, "--from-beginning", "--max-messages", "2"]
    assert tool(consumer, "alice", *wanted, "--timeout-ms", "30000").split() == ["one", "two"]


def test_java_tools_add_a_user_who_can_log_in_with_the_right_password_only(tool):
    change = ["--alter", "--entity-type", "users", "--entity-name", "gerda"]
    credential = "SCRAM-SHA-512=[iterations=8192,password=of-gerda]"
    tool("kafka.admin.ConfigCommand", "admin", *change, "--add-config", credential)
    described = tool("kafka.admin.ConfigCommand", "admin", "--describe", "--entity-type", "users")
    assert "'gerda' are SCRAM-SHA-512=iterations=8192" in described
    topics = "org.apache.kafka.tools.TopicCommand"
    assert tool(topics, "gerda", "--list", password="of-gerda").split() == []
    refused = tool(topics, "gerda", "--list", password="wrong", expect=1)
    assert "wrong user or password" in refused
