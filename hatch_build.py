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
LIBRARY = ROOM / "_kernels.so"
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
ZIG = (sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline", "-s")


def compile_kernels(root: Path) -> None:
    """Replaces the library whole, so that a process that has loaded it is not disturbed."""
    compiler = shlex.split(os.environ.get("CC", "")) or ZIG
    library, fresh = root / LIBRARY, (root / LIBRARY).with_suffix(".new")
    with TemporaryDirectory() as kept:  # instead of in the home
        environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": kept, "ZIG_LOCAL_CACHE_DIR": kept}
        command = [*compiler, *FLAGS, "-o", fresh, *sorted((root / ROOM).glob("*.c"))]
        subprocess.run(command, check=True, env=environment)  # noqa: S603
    fresh.replace(library)


class Kernels(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the library beside its source, and into the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        compile_kernels(Path(self.root))
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["artifacts"].append(str(LIBRARY))


if __name__ == "__main__":
    compile_kernels(Path(__file__).parent)
