"""``python -m tfdistr``: the command ``tfdistr``."""

from tfdistr.cli import main

main()
