"""`stromboli crds`: the custom resource definitions, ours and those of a cluster."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from stromboli.api import crd_schema
from stromboli.cli.clusters import connected
from stromboli.cli.options import Context, DryRun, Kubeconfig
from stromboli.cli.problems import quit_with

if TYPE_CHECKING:
    from stromboli.live.api_server.client import Kube
    from stromboli.live.api_server.definitions import Installed

#: the exit code when definitions differ
DIFFERENT = 1
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Those that others brought, Volcano for example, become ours, too.")
]


def print_() -> None:
    """Print the definitions of Queue, PodGroup and HyperNode.

    Example: stromboli crds print > crds.yaml
    """
    print("---\n".join(crd_schema.files().values()), end="")


def diff(kubeconfig: Kubeconfig = None, context: Context = None, take_over: TakeOver = False) -> None:
    """Show what `apply` would change in a cluster, and what definitions of others there drop or refuse of our objects.
    Exits with 1 when there is something to apply.

    Example: stromboli crds diff
    """
    changed = asyncio.run(_done(kubeconfig, context, take_over, dry_run=True, shown=True))
    if changed:
        raise typer.Exit(DIFFERENT)


def apply(
    kubeconfig: Kubeconfig = None, context: Context = None, take_over: TakeOver = False, dry_run: DryRun = False
) -> None:
    """Create the definitions in a cluster, and upgrade those that are ours, however they were applied. Those that
    others brought stay as they are.

    Example: stromboli crds apply
    """
    asyncio.run(_done(kubeconfig, context, take_over, dry_run=dry_run, shown=False))


async def _done(kubeconfig: Any, context: str | None, take_over: bool, *, dry_run: bool, shown: bool) -> bool:
    """Apply each definition, or try to; whether any of them changed."""
    from stromboli.live.api_server.client import ApiError
    from stromboli.live.api_server.definitions import installed

    changed = False
    try:
        async with connected(kubeconfig, context) as kube:
            for each in await installed(kube):
                if each.foreign and not take_over:
                    _tell_foreign(each)
                else:
                    changed |= await _applied(kube, each, dry_run=dry_run, shown=shown)
    except ApiError as error:
        quit_with([str(error)])
    return changed


def _tell_foreign(each: Installed) -> None:
    print(f"{each.name}: left as it is, because it belongs to another project; --take-over makes it ours")
    for line in each.lacks:
        print(f"  {line}")


async def _applied(kube: Kube, each: Installed, *, dry_run: bool, shown: bool) -> bool:
    from stromboli.live.api_server.definitions import apply, established

    after = await apply(kube, each.ours, dry_run=dry_run)
    changed = each.found is None or _content(each.found) != _content(after)
    word = "unchanged" if not changed else "created" if each.found is None else "upgraded"
    print(f"{each.name}: {f'would be {word}' if dry_run and changed else word}")
    if each.foreign:
        print("".join(f"  from then on: {line}\n" for line in each.narrows), end="")
    if shown and changed and each.found is not None:
        print("".join(_compared(each.name, _content(each.found), _content(after))), end="")
    if not dry_run and not await established(kube, each.name):
        quit_with([f"{each.name}: the API server does not serve it"])
    return changed


def _content(definition: Any) -> str:
    """A definition without the fields that the API server sets."""
    labels = definition["metadata"].get("labels") or {}
    return yaml.safe_dump({"labels": labels, "spec": definition["spec"]}, allow_unicode=True)


def _compared(name: str, before: str, after: str) -> Iterator[str]:
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    return difflib.unified_diff(old, new, f"{name} in the cluster", f"{name} of this version", n=2)
