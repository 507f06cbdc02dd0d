"""Print what is installed beside this interpreter as a CycloneDX document.

It is the same for the same packages: no time, and a serial number that follows from them.
"""

from __future__ import annotations

import json
import re
import uuid
from importlib.metadata import Distribution, distributions
from typing import Any


def document(installed: list[Distribution], of: str = "stromboli") -> dict[str, Any]:
    """The bill of materials of one of the packages: all the others."""
    components = {_name(each): _component(each) for each in sorted(installed, key=_name)}
    main = components.pop(of)
    parts = [str(main["purl"]), *(str(each["purl"]) for each in components.values())]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, ' '.join(parts))}",
        "version": 1,
        "metadata": {"component": {**main, "type": "application"}},
        "components": list(components.values()),
        "dependencies": [{"ref": main["bom-ref"], "dependsOn": [each["bom-ref"] for each in components.values()]}],
    }


def _name(package: Distribution) -> str:
    return re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower()


def _component(package: Distribution) -> dict[str, Any]:
    purl = f"pkg:pypi/{_name(package)}@{package.version}"
    license_ = package.metadata["License-Expression"]
    licenses = {"licenses": [{"expression": license_}]} if license_ else {}
    named = {"name": _name(package), "version": package.version, "purl": purl}
    return {"type": "library", "bom-ref": purl, **named, **licenses}


if __name__ == "__main__":
    print(json.dumps(document(list(distributions())), indent=2))
