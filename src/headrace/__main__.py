"""`python -m headrace` is the `headrace` command; so is this file, by its path, for `spark-submit`."""

import sys
from pathlib import Path

if not __package__:
    # Python puts the folder of a file that it runs first: ours has modules, but is no place to import from.
    sys.path[:] = [each for each in sys.path if Path(each).resolve() != Path(__file__).resolve().parent]

from headrace.cli import main

main()
