"""Which URLs are taken, and what is said of the others."""

import pytest

from headrace.errors import ConfigError
from headrace.objects import is_url, joined, require_supported


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/app",
        "s3://bucket/app?region=eu-central-1",
        "gs://bucket/app",
        "abfs://container@account.dfs.core.windows.net/app",
        "hdfs://namenode:8020/app",
        "hdfs:///app",
        "file:///srv/app",
    ],
)
def test_supported_urls_are_taken(url):
    assert is_url(url)
    require_supported("--data", url)


@pytest.mark.parametrize("path", ["/srv/app", "app", ".headrace/app", "a:b"])
def test_paths_are_no_urls(path):
    assert not is_url(path)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3a://bucket/app", "s3a:// is not supported; write s3://bucket/app"),
        ("ftp://host/app", "ftp:// is not supported; use one of s3://, gs://, abfs://, hdfs://, file://"),
        ("s3:///app", "names no bucket; write s3://BUCKET/app"),
        ("s3://bucket", "is a whole bucket or disk; name a folder in it, such as s3://bucket/APPLICATION"),
        ("s3://key:secret@bucket/app", "--data s3://bucket/app: the URL contains credentials"),
    ],
)
def test_other_urls_are_refused_with_what_to_write(url, said):
    with pytest.raises(ConfigError) as refused:
        require_supported("--data", url)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_name_is_joined_before_the_options():
    assert joined("s3://bucket/app/?region=x", "a/b") == "s3://bucket/app/a/b?region=x"
