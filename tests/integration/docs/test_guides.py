"""The code of guides and README: applications are planned by a real Spark, programs run or compile.

So is the picture of the demonstration.
"""

import subprocess
import sys

import pytest
from tools.example_pictures import kept
from tools.pages import DOCS, REPOSITORY, blocks
from tools.shop_picture import shop_app

from headrace.app.loading import load_app
from headrace.app.plain_frame import reading_from
from headrace.app.plan.graph import graph_of
from headrace.app.plan.picture import as_svg
from headrace.app.plan.planner import plan_app
from headrace.client import Connection
from headrace.testing.broker import BrokerProcess

PAGES = (REPOSITORY / "README.md", DOCS / "guides" / "from-kafka.md", DOCS / "guides" / "from-spark.md")
BLOCKS = [
    pytest.param(block, id=f"{page.name}:{block.line}")
    for page in PAGES
    for block in blocks(page.read_text())
    if block.language == "python"
]
WAYS = ("application ", "compiles", "runs")


def only(what: str) -> list:
    return [each for each in BLOCKS if each.values[0].note.startswith(what)]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_program_compiles_and_says_how_it_is_tested(block):
    compile(block.text, f"line {block.line}", "exec")
    assert block.note.startswith(WAYS)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("block", only("application "))
def test_an_application_is_planned_as_headrace_plan_does(block, spark, tmp_path):
    file = tmp_path / block.note.removeprefix("application ")
    file.write_text(block.text)
    app = load_app(file)
    with reading_from(spark, Connection()):
        graph = graph_of(plan_app(app, spark))
    assert {line.view for line in graph.lines} == set(app.views)


@pytest.mark.parametrize("block", only("runs"))
def test_a_kafka_client_runs_as_it_is(block, tmp_path):
    with BrokerProcess(tmp_path) as broker:  # its own: the topic's name is one that other tests use too
        program = block.text.replace("127.0.0.1:9092", broker.bootstrap)
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.stdout == "orders 0 0 b'{\"amount\": 20.0}'\n", ended.stderr


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_picture_in_the_index_is_the_plan_of_the_demonstration(spark):
    with reading_from(spark, Connection()):
        picture = as_svg(graph_of(plan_app(shop_app(), spark)))
    assert kept("shop", picture) == picture, "draw it anew: HEADRACE_WRITE_PICTURES=1 pytest " + __file__
