"""What `import headrace` offers."""

import headrace

OFFERED = {
    "App",
    "Happened",
    "PROCESSING_TIME",
    "Personal",
    "Rejected",
    "agg",
    "hopping",
    "session",
    "sliding",
    "tumbling",
    "__version__",
}


def test_dir_shows_exactly_what_is_offered():
    """However much else was imported meanwhile: modules become attributes of their package."""
    for name in OFFERED:
        assert getattr(headrace, name) is not None
    assert hasattr(headrace, "app")
    assert set(dir(headrace)) == set(headrace.__all__) == OFFERED
