"""`python -m gangsched.sim`."""

import sys

from gangsched.sim.command import main

if __name__ == "__main__":
    sys.exit(main())
