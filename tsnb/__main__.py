"""`python -m tsnb` is the command line."""

import sys

from tsnb.cli import main

sys.exit(main())
