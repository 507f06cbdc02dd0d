"""`python -m stromboli.cli.references docs` writes the generated pages, and the generated tables of other pages."""

from __future__ import annotations

import sys
from pathlib import Path

from stromboli.cli.references.pages import written


def main(folder: Path) -> None:
    """Write the pages into a folder that has the others."""
    for name, text in written(folder).items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
