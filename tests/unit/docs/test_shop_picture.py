"""The picture of revenue in the README is what the demonstration's view makes of its traffic."""

from tools.example_pictures import kept
from tools.pages import REPOSITORY
from tools.shop_picture import MINUTES, shop_minutes, shop_picture


def test_the_picture_in_the_readme_is_what_the_view_says():
    minutes, counters = shop_minutes()
    assert len(minutes) == MINUTES
    corrected, dead = counters["corrected"], counters["dead"]
    sentence = f"{corrected} orders came late and corrected what had been published; {dead} could"
    assert sentence in (REPOSITORY / "README.md").read_text()
    picture = shop_picture(minutes, counters)
    assert kept("revenue", picture) == picture, (
        "the demonstration gives something else now; draw it anew: "
        "HEADRACE_WRITE_PICTURES=1 .venv/bin/pytest tests/unit/docs/test_shop_picture.py"
    )
