"""Makes `python -m holdfast.cli` the command."""

import sys

from holdfast.cli import main

if __name__ == "__main__":
    sys.exit(main())
