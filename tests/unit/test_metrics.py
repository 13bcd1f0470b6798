from headrace.broker.metrics import error_codes
from headrace.metrics import MOST_SERIES, Counter, Family, Histogram, render


def test_a_counter_counts_by_label_values():
    counter = Counter("c_total", "Help.", "topic")
    counter.add(2, "a")
    counter.add(3, "b")
    counter.add(1, "a")
    assert render([counter.family()]) == (
        '# HELP c_total Help.\n# TYPE c_total counter\nc_total{topic="a"} 3\nc_total{topic="b"} 3\n'
    )


def test_a_counter_without_labels_is_there_from_the_start():
    assert render([Counter("c_total", "Help.").family()]).endswith("\nc_total 0\n")


def test_values_and_help_are_escaped():
    family = Family("g", "gauge", "one\ntwo \\", [("", (("name", 'a"b\\c\nd'),), 0.25)])
    assert render([family]) == ('# HELP g one\\ntwo \\\\\n# TYPE g gauge\ng{name="a\\"b\\\\c\\nd"} 0.25\n')


def test_a_bound_belongs_to_its_bucket_and_buckets_add_up():
    histogram = Histogram("h", "Help.")
    for seconds in (0.001, 0.0011, 100.0):
        histogram.observe(seconds)
    lines = render([histogram.family()]).splitlines()
    assert 'h_bucket{le="0.0005"} 0' in lines
    assert 'h_bucket{le="0.001"} 1' in lines
    assert 'h_bucket{le="0.0025"} 2' in lines
    assert 'h_bucket{le="30.0"} 2' in lines
    assert 'h_bucket{le="+Inf"} 3' in lines
    assert "h_count 3" in lines


def test_beyond_the_bound_label_values_are_counted_together():
    counter, histogram = Counter("c_total", "Help.", "id"), Histogram("h", "Help.", "id")
    for number in range(MOST_SERIES + 50):
        counter.add(1, str(number))
        histogram.observe(0.1, str(number))
    assert counter.value("other") == 50
    assert counter.value("0") == 1
    counter.add(1, "0")
    assert counter.value("0") == 2
    assert 'h_count{id="other"} 50' in render([histogram.family()])


def test_error_codes_are_found_wherever_they_are():
    answer = {
        "error_code": 0,
        "topics": [{"partitions": [{"error_code": 3}, {"error_code": 0}]}, {"error_code": 7}],
    }
    assert list(error_codes(answer)) == [3, 7]
