"""Names and texts as they stand in a statement."""

__all__ = ["identifier", "literal", "qualified"]


def identifier(name: str) -> str:
    """A name, quoted: nothing in it ends it."""
    return '"' + name.replace('"', '""') + '"'


def qualified(schema: str, name: str) -> str:
    return f"{identifier(schema)}.{identifier(name)}"


def literal(text: str) -> str:
    """A text, quoted, whatever `standard_conforming_strings` is."""
    if "\\" in text:
        return " E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
    return "'" + text.replace("'", "''") + "'"
