"""Two clients write prices to a database and to a cache: the race that dual writes lose."""

import argparse
import random
import sqlite3
import sys
import threading
from contextlib import closing

ITEMS, CHANGES = 5, 200


def create(path: str) -> None:
    """A table of prices: the database's, or the cache's."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE IF NOT EXISTS prices (item INTEGER PRIMARY KEY, price REAL NOT NULL)")


def put(path: str, item: int, price: float) -> None:
    """Sets one price, in a transaction of its own."""
    with closing(sqlite3.connect(path, timeout=60)) as database, database:
        database.execute("REPLACE INTO prices VALUES (?, ?)", (item, price))


def prices(path: str) -> dict[int, float]:
    """Every price."""
    with closing(sqlite3.connect(path)) as database:
        return dict(database.execute("SELECT item, price FROM prices ORDER BY item"))


def race(shop: str, cache: str, *, caching: bool = True) -> None:
    """Two clients set prices; each client writes to the cache what it has written to the database.

    At the end they set one price in opposite orders, as any two clients may, and the second
    write of a client to the cache fails.
    """
    clients = [threading.Thread(target=_client, args=(shop, cache, each, caching)) for each in (1, 2)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    put(shop, 0, 10.0)
    put(shop, 0, 20.0)  # the database has 20 from here on
    put(shop, 1, 30.0)
    if caching:
        put(cache, 0, 20.0)
        put(cache, 0, 10.0)  # the slower client's write comes last: the cache has 10
        # and the write of item 1 to the cache fails: nobody repeats it


def _client(shop: str, cache: str, number: int, caching: bool) -> None:
    chance = random.Random(number)  # noqa: S311 - prices, not secrets
    for _ in range(CHANGES):
        item, price = chance.randrange(ITEMS), round(chance.uniform(1, 100), 2)
        put(shop, item, price)
        if caching:
            put(cache, item, price)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shop")
    parser.add_argument("cache")
    parser.add_argument("--check", action="store_true", help="only compare")
    chosen = parser.parse_args()
    create(chosen.shop)
    create(chosen.cache)
    if not chosen.check:
        race(chosen.shop, chosen.cache)
    true, cached = prices(chosen.shop), prices(chosen.cache)
    differ = [item for item, price in true.items() if cached.get(item) != price]
    sys.stdout.write(f"items whose price differs: {differ}\n" if differ else "the same\n")


if __name__ == "__main__":
    main()
