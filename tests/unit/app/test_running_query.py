"""When a query that failed is started again."""

from headrace.app.running_query import RunningQuery


def test_tries_count_anew_once_a_restart_has_brought_the_query_further_and_pauses_grow_until_then():
    started = []
    query = RunningQuery("orders", lambda: started.append(1), None)
    pauses = []
    for batch in (7, 7, 7, 8, 8):
        query.failed_at(batch)
        pauses.append(query.pause_s)
        query.restart()
    assert pauses == [0, 2, 4, 0, 2]
    assert (query.tries, query.restarts, len(started)) == (2, 5, 5)
