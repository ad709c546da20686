"""`python -m selfdistill_cli` is the same as `selfdistill`."""

import sys

from selfdistill_cli.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
