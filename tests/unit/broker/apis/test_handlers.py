"""The table of handlers and the table of versions are about the same APIs."""

import asyncio
from pathlib import Path

from headrace.broker import BrokerSettings, GroupSettings
from headrace.broker.apis.handlers import handlers
from headrace.broker.apis.records.fetch_attempt import Fetching
from headrace.broker.apis.sasl import SaslApis
from headrace.broker.apis.versions import VERSIONS
from headrace.broker.services import open_services
from headrace.clock import SystemClock
from headrace.storage import Disk
from headrace.wire import Api, name_of


async def table_of_a_broker(data: Path):
    settings = BrokerSettings(data=str(data))
    async with open_services(settings, GroupSettings(), SystemClock(), Disk()) as services:
        fetching = Fetching(
            topics=services.topics,
            quotas=services.quotas,
            metrics=services.metrics,
            threads=services.threads,
            most_wait_ms=1,
            most_bytes=1,
        )
        return handlers(services, fetching, SaslApis(access=services.access), lambda _: None)


def test_every_api_that_is_served_has_a_handler_and_every_handler_is_served(tmp_path):
    table = asyncio.run(table_of_a_broker(tmp_path))
    pipelined = {Api.PRODUCE}
    assert {name_of(api) for api in table.keys() | pipelined} == {name_of(api) for api in VERSIONS}
    assert not table.keys() & pipelined


def test_a_handler_is_named_for_its_api(tmp_path):
    table = asyncio.run(table_of_a_broker(tmp_path))
    for api, handler in table.items():
        words = {word.rstrip("s") for word in name_of(api).split("_")}
        assert words & {word.rstrip("s") for word in handler.__name__.split("_")}, name_of(api)
