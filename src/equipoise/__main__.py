"""``python -m equipoise`` is the command line."""

import sys

from .cli import main

main()
