"""Invoices with the tax rate that was valid when the sale was made, whenever rates and sales arrive."""

from headrace import App

app = App("invoices")

rates = app.table(
    "tax-rates",
    key="country",
    schema="country string, percent double, since timestamp",
    valid_from="since",
    late="correct",
    correct_for="1 day",
    partitions=1,
)
sales = app.stream(
    "sales",
    schema="sale string, country string, amount double, sold_at timestamp",
    event_time="sold_at",
    lateness="1 hour",
    partitions=2,
)


@app.view(key="sale")
def invoices():
    """Each sale with the rate of its country at that time; null where none was known."""
    return sales.join(rates, on="country", how="left")
