"""`python -m tests.compat [DIR...]`: how many of kube-scheduler's answers ours agree with; exits with 0 for all."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.compat.tables import cases, differences, recorded


async def main(arguments: list[str]) -> int:
    """Ask about the cases of the folders, by default about those that were recorded."""
    folders = [Path(argument) for argument in arguments] or [recorded()]
    agreed = count = 0
    for case in (case for folder in folders for case in cases(folder)):
        lines = await differences(case)
        count += 1
        agreed += not lines
        for line in lines:
            print(f"{case.path.name}: {case.family}: {case.name}: {line}")
    print(f"{agreed} of {count} agree")
    return int(agreed < count or not count)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
