"""`python -m tsnb` is the command line."""

import os
import sys

# Python has put the working directory first: nothing of it may stand for what the command line imports
try:
    if sys.path and sys.path[0] == os.getcwd():  # noqa: PTH109 (light)
        del sys.path[0]
except FileNotFoundError:  # the working directory has been removed: nothing can be imported from there
    pass

from tsnb.cli import main

sys.exit(main())
