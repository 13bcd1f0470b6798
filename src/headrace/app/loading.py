"""An application from its file."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from headrace.app.application import App
from headrace.app.diagnostics.mistakes import mistake
from headrace.app.diagnostics.places import Place
from headrace.errors import ConfigError

__all__ = ["import_app", "load_app"]


def load_app(path: Path) -> App:
    """Runs the file and returns the one App in it; raises ConfigError if there is none, or several.

    Spark's workers get the file's own functions by value, for they cannot import it.
    """
    app, module = _load(path)
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return app


def import_app(path: Path) -> App:
    """The same for a test in this process, without Spark."""
    return _load(path)[0]


def _load(path: Path) -> tuple[App, ModuleType]:
    if not path.is_file():
        raise ConfigError(f"there is no file {path}; name the Python file of an application")
    module = _import(path)
    found = {id(value): value for value in vars(module).values() if isinstance(value, App)}
    if len(found) != 1:
        raise ConfigError(
            f'{path} has {len(found)} applications; it must have one: `app = App("name")` at its top level'
        )
    return next(iter(found.values())), module


def _import(path: Path) -> ModuleType:
    name = f"headrace_application_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever is wrong with the user's own file
        raise mistake(error, place=Place(str(path.resolve()), 1)) from error
    return module
