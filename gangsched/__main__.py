"""`python -m gangsched`: the same as `gangsched`, if the console script is not on the PATH."""

import sys

from gangsched.command.cli import main

if __name__ == "__main__":
    sys.exit(main())
