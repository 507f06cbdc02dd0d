"""`python -m tests.fairshare [DIR...]`: how many recorded cases agree; exits with 0 only when all do."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.fairshare.replay import cases, difference
from tests.fairshare.shared import recorded


def main(arguments: list[str]) -> int:
    """Replay the cases below the folders, by default all that were recorded."""
    folders = [Path(argument) for argument in arguments] or [recorded() / "cases"]
    agreed = count = 0
    for path, case in cases(folders):
        differs = difference(case)
        count += 1
        agreed += differs is None
        if differs is not None:
            print(f"{path.name}: {case['id']}: {differs}")
    print(f"{agreed} of {count} agree")
    return int(agreed < count or not count)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
