"""A social timeline: the newest posts of everybody that a user follows, kept right as all of it changes."""

from headrace import App

app = App("timeline")

follows = app.table(
    "follows", key=["follower", "author"], schema="follower string, author string", partitions=2
)
posts = app.table(
    "posts",
    key="post",
    schema="post long, author string, text string, posted_at timestamp",
    partitions=2,
)


@app.view
def timelines():
    """Of each follower, the three newest posts."""
    return follows.join(posts, on="author").top(3, by="posted_at", per="follower")
