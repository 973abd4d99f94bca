"""Run the command line: ``python -m holdfast``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
