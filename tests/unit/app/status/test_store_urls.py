"""URLs of stores, as other processes may see them."""

from pathlib import Path

import pytest

from headrace.app.status.store_urls import absolute_url, with_password, without_password


@pytest.mark.parametrize(
    ("url", "shown", "password"),
    [
        ("postgresql://me:s3cr%40t@db:5432/shop", "postgresql://me@db:5432/shop", "s3cr@t"),
        ("postgresql://me@db/shop?sslmode=require", "postgresql://me@db/shop?sslmode=require", None),
        ("postgres://db/shop?user=me&password=p", "postgres://db/shop?user=me", "p"),
        ("postgresql://me:a:b@h1:1,h2:2/shop?sslpassword=x", "postgresql://me@h1:1,h2:2/shop", "a:b"),
        (
            "postgresql://me@db/shop?password=env%3APGPASSWORD",
            "postgresql://me@db/shop?password=env%3APGPASSWORD",
            None,
        ),
        (
            "postgresql://me@db/shop?sslpassword=x&password=file:/p",
            "postgresql://me@db/shop?password=file%3A%2Fp",
            None,
        ),
        ("sqlite:////data/views.db", "sqlite:////data/views.db", None),
        ("topic://shop.*", "topic://shop.*", None),
    ],
)
def test_a_password_is_taken_out_of_a_url_and_can_be_put_back(url, shown, password):
    assert without_password(url) == (shown, password)
    if password is not None:
        assert without_password(with_password(shown, password)) == (shown, password)


def test_a_relative_path_no_longer_depends_on_the_folder_it_was_given_in(tmp_path: Path):
    assert absolute_url("sqlite:///shop.db", tmp_path) == f"sqlite:///{tmp_path.resolve()}/shop.db"
    assert absolute_url("sqlite:////else/shop.db", tmp_path) == "sqlite:////else/shop.db"
    assert absolute_url("parquet:///a%20b", tmp_path) == f"parquet:///{tmp_path.resolve()}/a%20b"
    assert absolute_url("memory://shop", tmp_path) == "memory://shop"
