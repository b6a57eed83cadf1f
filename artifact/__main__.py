"""`python -m artifact`."""

import sys

from artifact import stopped
from artifact.cli import main

stopped.as_interrupt()
sys.exit(main())
