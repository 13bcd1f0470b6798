"""Prices in a Redis cache that follows the database: `headrace follow run --file cache.py`."""

import os

from headrace import App
from headrace.derived import redis

app = App("shop")
prices = app.capture("sqlite:///shop.db", table="prices")
cache = redis(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), prefix="price:")
app.follow(prices, into=cache, name="cache")
