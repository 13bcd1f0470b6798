"""One Spark query for all views of a stream, column by column.

    feed ──> [projection ──> pack]  ──shuffle by bucket──>  stage ──> the sink of a batch

The feed packs rows into a few fat messages, in the source itself where nothing
stands between; with user columns in between, Spark's own projection computes them
and the packing happens behind it. Keys are spread over a fixed number of buckets.
The stage keeps one operator state per bucket and view, in files beside Spark's
checkpoint, and turns partial results into changes. Everything that crosses a process border is an
Arrow stream or JSON.
"""
