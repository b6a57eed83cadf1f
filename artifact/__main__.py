"""`python -m artifact`."""

import sys

from artifact import stopped
from artifact.cli import main

stopped.as_interrupt()
# What a terminal's encoding lacks is shown as "?" instead of ending the command in the middle.
sys.stdout.reconfigure(errors="replace")
sys.exit(main())
