"""What the state says while a first load is written."""

from headrace.capture.loading import TableLoad
from headrace.capture.source import LoadedRows
from headrace.capture.state import CaptureState, TableState, parse_state

POSITION = {"lsn": 7}


class Load:
    read_us, is_done = 1, False

    def close(self) -> None:
        pass


def state_of(*tables: str, again: bool = False) -> CaptureState:
    return CaptureState(position=POSITION, tables={each: TableState(again=again) for each in tables})


def rows(table: str, *, is_whole: bool) -> LoadedRows:
    return LoadedRows(table=table, rows=None, is_whole=is_whole)


def test_no_position_is_kept_before_all_tables_without_keys_are_whole():
    load = TableLoad(Load(), position=POSITION, keyless=["bare", "other"])
    state = load.begun(state_of("bare", "other", "keyed"))
    assert state.position is None and load.is_held
    for table, is_whole in (("bare", False), ("keyed", False), ("bare", True)):
        state = load.advanced(state, rows(table, is_whole=is_whole), 10)
        assert state.position is None and load.is_held
    state = load.advanced(state, rows("other", is_whole=True), 1)
    assert state.position == POSITION and not load.is_held
    assert state.tables["bare"] == TableState(phase="done", rows=20)


def test_a_table_that_is_not_whole_is_at_its_beginning_for_the_next_run():
    load = TableLoad(Load(), position=POSITION, keyless=[])
    state = load.begun(state_of("a", "b"))
    assert state.position == POSITION
    state = load.advanced(state, rows("a", is_whole=True), 5)
    state = load.advanced(state, rows("b", is_whole=False), 5)
    next_run = parse_state(state.to_json()).without_loads()
    assert next_run.tables == {"a": TableState(phase="done", rows=5), "b": TableState()}
    assert next_run.next_snapshot() == "b"


def test_a_table_whose_topic_had_rows_looks_for_those_that_are_gone_next():
    load = TableLoad(Load(), position=POSITION, keyless=[])
    state = load.advanced(state_of("a", again=True), rows("a", is_whole=True), 5)
    assert state.tables["a"].phase == "gone"


def test_a_snapshot_in_chunks_keeps_its_place():
    state = state_of("a").advanced("a", [9], 9)
    assert state.without_loads() == state
