"""docs/reference/kafka.md lists every API that the broker serves, in the versions that it serves."""

import re

from tools.pages import DOCS

from headrace.broker.apis.versions import VERSIONS
from headrace.wire import Api

PAGE = (DOCS / "reference" / "kafka.md").read_text()


def listed():
    rows = re.findall(r"^\| [^|]+ \| (\w+ \d[^|]*) \|$", PAGE, re.M)
    found = re.findall(r"(\w+) (\d+)(?:-(\d+))?(?:, |$)", ", ".join(rows))
    return {name: (int(lowest), int(highest or lowest)) for name, lowest, highest in found}


def served():
    return {
        Api(api).name.title().replace("_", ""): (each.lowest, each.highest) for api, each in VERSIONS.items()
    }


def test_the_table_has_every_api_that_is_served_and_no_other():
    assert listed() == served()
