"""`stromboli crds`: the custom resource definitions."""

from __future__ import annotations

from stromboli.api import crd_schema


def crds() -> None:
    """Print the definitions of Queue, PodGroup and HyperNode, for clusters that have none.

    Example: stromboli crds | kubectl apply -f -
    """
    print("---\n".join(crd_schema.files().values()), end="")
