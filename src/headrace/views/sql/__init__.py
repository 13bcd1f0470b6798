"""Views in databases: SQLite and PostgreSQL, each batch in one transaction."""
