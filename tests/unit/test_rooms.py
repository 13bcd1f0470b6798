"""Rooms offer names by their packages, and other rooms take those names only."""

import ast
import functools
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace

SOURCE = Path(headrace.__file__).parent


def module_of(file: Path) -> str:
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in SOURCE.rglob("*.py")}
PACKAGES = sorted(module for module, file in MODULES.items() if file.name == "__init__.py")


def room(module: str) -> str:
    return ".".join(module.split(".")[:2])


@functools.cache
def trees() -> dict[str, ast.Module]:
    return {module: ast.parse(file.read_text()) for module, file in MODULES.items()}


def taken_from_other_rooms() -> Iterator[tuple[str, str, str]]:
    """Who imports, from which module of another room, which name."""
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("headrace."):
                continue
            if room(node.module) != room(module):
                yield from ((module, node.module, alias.name) for alias in node.names)


def is_deep(module: str) -> bool:
    return module not in PACKAGES and module.count(".") > 1


def test_a_room_takes_from_another_only_what_its_packages_offer():
    past = [each for each in taken_from_other_rooms() if is_deep(each[1]) and each[0] != "headrace"]
    hidden = [
        (importer, package, name)
        for importer, package, name in taken_from_other_rooms()
        if package in PACKAGES and f"{package}.{name}" not in PACKAGES
        if name not in importlib.import_module(package).__all__
    ]
    assert (past, hidden) == ([], [])


@pytest.mark.parametrize("package", [each for each in PACKAGES if each != "headrace"])
def test_a_package_says_what_it_is_for_and_has_what_it_offers(package):
    offered = importlib.import_module(package)
    assert len((offered.__doc__ or "").split()) > 4
    for name in getattr(offered, "__all__", ()):
        assert getattr(offered, name) is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_what_a_lazy_package_offers(package):
    tree = trees()[package]
    blocks = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    listed = {alias.asname or alias.name for block in blocks for n in block.body for alias in n.names}
    assert listed <= set(getattr(importlib.import_module(package), "__all__", ()))
    if "lazily" in MODULES[package].read_text():
        assert listed == set(importlib.import_module(package).__all__)
