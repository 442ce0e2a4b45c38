"""`python -m holdfast.cli` is the command, too."""

import sys

from holdfast.cli import main

if __name__ == "__main__":
    sys.exit(main())
