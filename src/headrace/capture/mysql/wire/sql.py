"""Names and texts as they stand in a statement."""

__all__ = ["identifier", "literal", "qualified"]


def identifier(name: str) -> str:
    """A name, quoted: nothing in it ends it."""
    return "`" + name.replace("`", "``") + "`"


def qualified(schema: str, name: str) -> str:
    return f"{identifier(schema)}.{identifier(name)}"


def literal(text: str) -> str:
    """A text as hexadecimal digits, which mean the same whatever `sql_mode` is."""
    return f"_utf8mb4 0x{text.encode().hex()}" if text else "''"
