"""``python -m tfdistr``: the command ``tfdistr``."""

from tfdistr.cli.main import main

main()
