"""`python -m gangsched.lab.sim`."""

import sys

from gangsched.lab.sim.command import main

if __name__ == "__main__":
    sys.exit(main())
