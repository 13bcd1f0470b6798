"""Compiles the kernels when the package is built, or installed for development.

With the C compiler that comes with `ziglang` from PyPI, so that a machine needs Python and
pip and nothing else, and everybody has the same one; or with the one that CC names. For
the oldest processors of a kind: a wheel may be installed elsewhere than where it was made.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOM = Path("src/headrace/kernels")
SOURCE, LIBRARY = ROOM / "kernels.c", ROOM / "_kernels.so"
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
ZIG = (sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline", "-s")


class Kernels(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the library beside its source, and into the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        compiler = shlex.split(os.environ.get("CC", "")) or ZIG
        root = Path(self.root)
        with TemporaryDirectory() as kept:  # instead of in the home
            environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": kept, "ZIG_LOCAL_CACHE_DIR": kept}
            command = [*compiler, *FLAGS, "-o", root / LIBRARY, root / SOURCE]
            subprocess.run(command, check=True, env=environment)  # noqa: S603
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["artifacts"].append(str(LIBRARY))
