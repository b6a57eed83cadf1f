"""`python -m artifact`."""

import sys

from artifact import cli, command

command.as_interrupt()
sys.exit(cli.main())
