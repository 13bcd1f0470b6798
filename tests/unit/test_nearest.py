"""What somebody who misspelt a name may have meant."""

from headrace.nearest import nearest, no_such

COLUMNS = ("device", "temp", "at")


def test_the_nearest_name_is_found_in_whatever_case():
    assert nearest("tmp", COLUMNS) == "temp"
    assert nearest("DEVICE", COLUMNS) == "device"
    assert nearest("pressure", COLUMNS) is None


def test_what_there_is_is_listed_with_and_without_a_guess():
    assert no_such("column", "tmp", COLUMNS) == (
        "there is no column 'tmp'; did you mean 'temp'? There is device, temp, at"
    )
    assert no_such("column", "zzz", COLUMNS) == "there is no column 'zzz'; there is device, temp, at"
    assert no_such("view", "zzz", ()) == "there is no view 'zzz'; there is none"
