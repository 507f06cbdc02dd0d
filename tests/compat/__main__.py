"""`python -m tests.compat [DIR...]`: how many of kube-scheduler's answers agree with ours, and which differ."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.compat.tables import cases, differences, excused, recorded


async def main(arguments: list[str]) -> int:
    """Ask about the cases of the folders, by default about those that were recorded."""
    folders = [Path(argument) for argument in arguments] or [recorded()]
    known, agreed, unknown, count = excused(), 0, 0, 0
    for case in (case for folder in folders for case in cases(folder)):
        lines = await differences(case)
        count += 1
        agreed += not lines
        unknown += bool(lines) and case.path.name not in known
        for line in lines:
            why = f" ({known[case.path.name]})" if case.path.name in known else ""
            print(f"{case.path.name}: {case.family}: {case.name}: {line}{why}")
    print(f"{agreed} of {count} agree")
    return int(unknown > 0 or not count)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
