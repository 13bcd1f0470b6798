"""What `headrace run` and `headrace verify` print of batches and verdicts."""

from headrace.app.status.batch_report import BatchReport
from headrace.app.verify.recompute import KeyDifference, Verdict
from headrace.cli.show.applications import batch_line, render_verdicts, verdict_data, verdict_line
from headrace.views import Reflected


def report(records=0, changed=0, **counters):
    return BatchReport(
        query="orders",
        batch_id=3,
        records=records,
        watermark_us=None,
        following={0: 7},
        counters={"revenue": counters},
        changed={"revenue": changed},
    )


def verdict(view="revenue", differences=(), **counters):
    return Verdict(view=view, rows=4, differences=tuple(differences), reflected=Reflected(counters=counters))


def header(*verdicts):
    return " ".join(render_verdicts(verdicts).splitlines()[0].split())


def test_a_batch_without_anything_has_no_line():
    assert batch_line(report()) is None


def test_a_batch_tells_what_it_read_and_changed():
    line = batch_line(report(1200, 2, on_time=1198, dropped=1, dead=1))
    assert line == "orders batch 3: 1,200 records; revenue 2 changed (1 dropped, 1 dead)"


def test_offsets_that_retention_took_are_told_also_by_a_batch_that_read_nothing():
    line = batch_line(report(skipped=1500))
    assert line == "orders batch 3: 0 records; 1,500 offsets skipped, which retention had taken"


def test_counters_of_nothing_are_left_out_of_the_table_but_for_the_usual_ones():
    assert header(verdict(on_time=4)) == "view rows on time corrected dropped dead verdict"
    shown = header(verdict(on_time=4), verdict("other", filtered=1, repeated=2, declared=3))
    assert shown == "view rows on time corrected dropped filtered dead repeated declared verdict"


def test_rows_that_are_not_shown_since_others_have_their_key_are_told():
    inputs = {"t": {"on_time": 3}, "first of v": {"hidden": 2}}
    found = Verdict(view="dup", rows=1, reflected=Reflected(counters={"on_time": 3}, inputs=inputs))
    assert render_verdicts([found]).splitlines()[-1].startswith("dup: 2 rows are not shown")
    assert verdict_data(found)["hidden"] == 2


def test_a_view_that_could_not_be_verified_is_not_equal_and_says_why():
    failed = Verdict(view="revenue", failure="its table is gone")
    assert verdict_line(failed) == "revenue: FAILED"
    assert verdict_line(verdict("other")) == "other: equal"
    _, _, row, other, line = render_verdicts([failed, verdict("other", on_time=4)]).splitlines()
    assert row.split() == ["revenue", "-", "-", "-", "-", "-", "failed"] and other.endswith("equal")
    assert line == "revenue could not be verified: its table is gone"
    data = verdict_data(failed)
    assert (data["equal"], data["failure"]) == (False, "its table is gone")
    assert verdict_data(verdict())["failure"] is None


def test_of_many_differences_the_first_are_shown_and_the_others_counted():
    differences = [KeyDifference({"region": number}, None, {"n": 1}) for number in range(1025)]
    table, *lines = render_verdicts([verdict(differences=differences)]).split("\nrevenue {", 1)
    assert "1,025 rows differ" in table
    shown = ("{" + lines[0]).splitlines()
    assert shown[0] == "{'region': 0}: served None, recomputed {'n': 1}"
    assert len(shown) == 21 and shown[-1] == "revenue: and 1,005 more"
