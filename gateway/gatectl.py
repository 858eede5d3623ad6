"""The `gatectl` command line: its name is taken, its verbs come with a later version."""

from __future__ import annotations

import sys


def main() -> None:
    print(  # noqa: T201 - a command line
        "gatectl comes with a later version; until then deploy/two-step.sh makes a call with curl", file=sys.stderr
    )
    sys.exit(2)
