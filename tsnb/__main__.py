"""`python -m tsnb` is the command line."""

import os
import sys

# Python has put the working directory first: nothing of it may stand for what the command line imports
if sys.path and sys.path[0] == os.getcwd():  # noqa: PTH109 (light)
    del sys.path[0]

from tsnb.cli import main

sys.exit(main())
