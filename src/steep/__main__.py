"""`python -m steep` is the `steep` command."""

import sys

from steep.cli import main

if __name__ == "__main__":
    sys.exit(main())
