"""``python -m equipoise`` is the command line."""

from .cli import main

main()
