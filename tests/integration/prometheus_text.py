"""A strict reader of Prometheus' text format 0.0.4, written from its description.

It refuses what a Prometheus server would, and what it would only silently accept:
samples without a type, a family in two places, a series twice, a histogram whose
buckets shrink or whose last one is not its count.
"""

import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def parse(text):
    """Families by name: kind, help, and samples by (name, labels)."""
    assert text.endswith("\n")
    families, current = {}, None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            _, _, name, about = line.split(" ", 3)
            assert re.fullmatch(NAME, name) and name not in families, line
            assert about
            current = families[name] = {"kind": None, "help": about, "samples": {}, "name": name}
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert current is not None and current["name"] == name and not current["samples"], line
            assert kind in SUFFIXES, line
            current["kind"] = kind
        else:
            _add(current, line)
    for family in families.values():
        if family["kind"] == "histogram":
            _check_histogram(family)
    return families


def _add(family, line):
    matched = SAMPLE.fullmatch(line)
    assert matched, line
    name, labels, value = matched.groups()
    assert name in {family["name"] + suffix for suffix in SUFFIXES[family["kind"]]}, line
    pairs = tuple(sorted(_labels(labels or "")))
    assert (name, pairs) not in family["samples"], f"twice: {line}"
    family["samples"][name, pairs] = float(value)
    assert family["kind"] != "counter" or float(value) >= 0, line


def _labels(text):
    position, names = 0, set()
    while position < len(text):
        matched = LABEL.match(text, position)
        assert matched and matched[1] not in names, text
        names.add(matched[1])
        unescaped = re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), matched[2])
        yield matched[1], unescaped
        position = matched.end()


def _check_histogram(family):
    name, series = family["name"], {}
    for (sample, labels), value in family["samples"].items():
        others = tuple(pair for pair in labels if pair[0] != "le")
        entry = series.setdefault(others, {"buckets": []})
        if sample == f"{name}_bucket":
            entry["buckets"].append((float(dict(labels)["le"]), value))
        else:
            entry[sample.removeprefix(name)] = value
    for entry in series.values():
        bounds, counts = zip(*sorted(entry["buckets"]), strict=True)
        assert bounds[-1] == float("inf")
        assert list(counts) == sorted(counts)
        assert counts[-1] == entry["_count"]
        assert (entry["_sum"] > 0) <= (entry["_count"] > 0)
