"""What pages say of speed is what was measured: each figure is on the page of benchmarks."""

import re

import pytest
from tools.pages import DOCS, REPOSITORY

MEASURED = (DOCS / "reference" / "benchmarks.md").read_text()
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_RATIO = re.compile(r"(\d+\.\d+)(?: to (\d+\.\d+))?(?= times| of the)")


def numbers(text):
    return [float(each.replace(",", "")) for each in _NUMBER.findall(text)]


def measured(ratio):
    """Whether the page of benchmarks has a number that is this one, rounded as it is."""
    decimals = len(ratio.partition(".")[2])
    return any(round(each, decimals) == float(ratio) for each in numbers(MEASURED))


def table_of_speed():
    _, _, section = (REPOSITORY / "README.md").read_text().partition("## Performance")
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return [(row[0], row[-1]) for row in rows if numbers(row[-1])]


@pytest.mark.parametrize(("what", "ratio"), table_of_speed())
def test_each_ratio_of_the_readme_was_measured(what, ratio):
    for each in re.findall(r"\d+\.\d+", ratio):
        assert measured(each), f"{what}: {each} is not in docs/reference/benchmarks.md"


@pytest.mark.parametrize("page", ["README.md", "docs/guides/from-spark.md", "docs/explanation/goals.md"])
def test_ratios_in_sentences_were_measured(page):
    said = [each for found in _RATIO.findall((REPOSITORY / page).read_text()) for each in found if each]
    assert [each for each in said if not measured(each)] == []


def test_the_guide_for_users_of_spark_says_what_the_readme_says():
    """One figure for one thing: windows over JSON at 10,000 keys, and append to visible."""
    readme = dict(table_of_speed())
    (windows,) = [ratio for what, ratio in readme.items() if what.startswith("windows over JSON, 10,000")]
    (visible,) = [ratio for what, ratio in readme.items() if what.startswith("append to visible")]
    guide = " ".join((DOCS / "guides" / "from-spark.md").read_text().split())
    assert f"{windows} times as many events per second" in guide
    assert f"{visible} of the time" in guide


def test_each_whole_figure_of_the_readme_was_measured():
    _, _, section = (REPOSITORY / "README.md").read_text().partition("## Performance")
    figures = set(re.findall(r"\b\d{1,3}(?:,\d{3})+\b", section))
    assert len(figures) > 5
    assert {each for each in figures if each not in MEASURED} == set()
