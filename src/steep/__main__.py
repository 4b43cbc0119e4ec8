"""`python -m steep` is the `steep` command."""

from __future__ import annotations

import sys

from steep.cli import main

if __name__ == "__main__":
    sys.exit(main())
