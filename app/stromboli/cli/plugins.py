"""`stromboli plugins`: what a policy can name, and what helps to write a plugin."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel

from stromboli.api.documents import read_yaml
from stromboli.api.errors import PolicyError
from stromboli.api.validation import did_you_mean
from stromboli.cli.options import PluginsDir, policy_option
from stromboli.cli.references.tables import code, table
from stromboli.discovery import PLUGINS as GROUP
from stromboli.discovery import discover, nameless, python_files
from stromboli.engine import Engine
from stromboli.framework.action import Action
from stromboli.framework.plugin.base import DECLARED, HINTS, Plugin, extension_points
from stromboli.framework.plugin.hints import FLAGS
from stromboli.framework.registry import Registry
from stromboli.plugin_kit.package import write_package
from stromboli.plugin_kit.trial import try_plugin
from stromboli.policy.switches import SWITCHES
from stromboli.simulation.files import LARGEST_POLICY, read_text

_HEADER = """\
# Plugins

Every plugin with the extension points that it takes part in, the hints that it gives and the arguments that a policy
can give it, and below them every [action](#actions), how [answers of several plugins](#extension-points) become one,
and what [hints](#hints) there are. `stromboli plugins` prints the same, with `--plugins-dir` also of your own.
"""
_POINTS = """\
# Extension points

The methods that a plugin may override, how the answers of several plugins become one, and the switch of a policy that
turns a plugin's part off. Plugins are asked tier by tier, in the order of the policy.
"""
_HINTS = """\
# Hints

What a plugin says about its own answers, so that they are kept instead of asked for again. Hints change no decision.
Those about methods are lost in a subclass that overrides these methods and does not give the hint anew.
"""


def page(plugins_dir: Path | None) -> None:
    """Print every plugin and action with its arguments, as Markdown."""
    print(markdown(discover(plugins_dir)), end="")


def showing(name: str) -> Callable[[PluginsDir], None]:
    """The command that shows one plugin or action."""

    def show(plugins_dir: PluginsDir = None) -> None:
        """Print what a plugin or an action does, with its arguments."""
        registry = discover(plugins_dir)
        if name in registry.actions and name not in registry.plugins:
            print("\n".join(_section(registry.actions[name])))
        else:
            print("\n".join(_plugin(_named(name, registry, plugins_dir))))

    return show


def new(
    name: Annotated[str, typer.Argument(help="What policies call it: small letters, digits and '-'.")],
    directory: Annotated[Path, typer.Option("--dir", help="Where the package's folder is made.")] = Path(),
    action: Annotated[bool, typer.Option("--action", help="An action instead of a plugin.")] = False,
) -> None:
    """Write a package to begin with: a plugin, its arguments, and a test that passes.

    Example: stromboli plugins new team-nodes --dir ~/src
    """
    package = write_package(name, directory, action=action)
    print(f"{package}: in it, try it with `pytest`, install it with `pip install -e .`, then name {name!r} in a policy")


def check(
    name: Annotated[str, typer.Argument(help="The plugin's name in a policy.")],
    plugins_dir: PluginsDir = None,
    policy: Annotated[
        Path | None, policy_option(" that uses it, with its arguments; by default the usual plugins and it")
    ] = None,
    clusters: Annotated[int, typer.Option(min=1, max=10_000, help="Random clusters to try it on.")] = 30,
    nodes: Annotated[
        int, typer.Option(min=0, max=100_000, help="Nodes of the cluster that it is timed on; 0 for none.")
    ] = 5_000,
    seed: Annotated[int, typer.Option(help="Which clusters are drawn.")] = 0,
) -> None:
    """Try a plugin on random clusters: its answers, what it reads, whether it decides alike, and what it costs.

    Example: stromboli plugins check team-nodes --plugins-dir . --nodes 500
    """
    registry = discover(plugins_dir)
    plugin = _named(name, registry, plugins_dir)
    document = _document(policy, name, registry) if policy else None
    findings = try_plugin(plugin, document, registry=registry, clusters=clusters, seed=seed, nodes=nodes)
    for finding in findings:
        print(f"{'failed' if finding.problems else 'ok':8}{finding.check}{f': {finding.note}' if finding.note else ''}")
        for problem in finding.problems:
            print(f"{'':8}- {problem}")
    if any(finding.problems for finding in findings):
        raise typer.Exit(1)


def markdown(found: Registry) -> str:
    """The page of all plugins and actions."""
    plugins = (line for name in sorted(found.plugins) for line in _plugin(found.plugins[name]))
    actions = (line for name in sorted(found.actions) for line in _section(found.actions[name]))
    return "\n".join([_HEADER, *plugins, "# Actions\n", *actions, _POINTS, _points(), _HINTS, _hints()])


def _points() -> str:
    """A table of the declarations of each extension point."""
    rows = (
        (
            code(_signature(name)),
            (inspect.getdoc(getattr(Plugin, name)) or "").partition("\n\n")[0],
            declared.combination.value,
            code(SWITCHES[declared.switch]) if declared.switch else "",
        )
        for name, declared in DECLARED.items()
        if name not in HINTS
    )
    return table(("point", "what it answers", "how answers become one", "switch"), rows)


def _signature(point: str) -> str:
    """An extension point as its method is written, without `self`."""
    signature = inspect.signature(getattr(Plugin, point))
    taken = ", ".join(f"{each.name}: {each.annotation}" for each in list(signature.parameters.values())[1:])
    return f"{point}({taken}) -> {signature.return_annotation}"


def _hints() -> str:
    """A table of the declarations of each hint."""
    flags = ((code(name), "", "Yes or no, for the plugin as a whole.") for name in FLAGS)
    methods = (
        (code(name), code(*declared.about), declared.combination.value)
        for name, declared in DECLARED.items()
        if name in HINTS
    )
    return table(("hint", "about methods", "how answers become one"), (*methods, *flags))


def _named(name: str, registry: Registry, folder: Path | None) -> type[Plugin]:
    """Raises PolicyError for a plugin that there is not, with where it was looked for and what to do."""
    if name in registry.plugins:
        return registry.plugins[name]
    if name in registry.actions:
        raise PolicyError([f"{name!r} is an action, and only plugins are checked"])
    problems = [f"unknown plugin {name!r}{did_you_mean(name, registry.plugins)}"]
    if folder is None:
        problems.append("no folder was looked at: --plugins-dir DIR names that of its Python file")
    else:
        files = ", ".join(path.name for path in python_files(folder)) or "none"
        problems.append(f"{folder}: looked at its Python files ({files}), for classes derived from Plugin with a name")
        problems += [f"class {each} has no name: give it `name = {name!r}`" for each in nameless(Plugin)]
    packages = ", ".join(
        sorted({f"{entry.name} of {entry.dist.name}" for entry in entry_points(group=GROUP) if entry.dist})
    )
    problems.append(
        f"{sys.prefix}: looked at the entry points {GROUP} of installed packages ({packages or 'none'}): "
        "`pip install -e .` in a package's folder adds its own"
    )
    raise PolicyError(problems)


def _document(path: Path, plugin: str, registry: Registry) -> dict[str, Any]:
    """A policy document that can be used and uses a plugin. Raises PolicyError, UnreadableFileError."""
    text = read_text(path, LARGEST_POLICY)
    tiers = Engine(text, registry=registry, source=str(path)).policy.tiers
    if not any(option.name == plugin for tier in tiers for option in tier.plugins):
        raise PolicyError([f"{path}: does not use plugin {plugin!r}"])
    document: dict[str, Any] = next(read_yaml(text))
    return {**document, "tiers": [{"plugins": tier.get("plugins") or []} for tier in document["tiers"]]}


def _plugin(plugin: type[Plugin]) -> Iterator[str]:
    points = extension_points(plugin)
    taken = [point for point in points if point not in HINTS]
    hints = [point for point in points if point in HINTS] + [flag for flag in FLAGS if getattr(plugin, flag)]
    line = f"Extension points: {code(*taken) or 'none'}."
    return _section(plugin, f"{line} Hints: {code(*hints)}.\n" if hints else f"{line}\n")


def _section(found: type[Plugin] | type[Action], *more: str) -> Iterator[str]:
    yield f"## {found.name}\n"
    yield summary(found)
    yield ""
    yield from more
    if found.Arguments is not None:
        yield table(("argument", "type", "default", ""), arguments(found.Arguments))


def arguments(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    """Name, type, default and description of each argument."""
    for name, field in model.model_fields.items():
        yield code(field.alias or name), _type(field.annotation), _default(field), field.description or ""


def summary(found: type) -> str:
    """The first paragraph about a class, in its module if that says more than its name."""
    module = importlib.import_module(found.__module__.removesuffix(".plugin"))
    text = " ".join((module.__doc__ or found.__doc__ or "").strip().split("\n\n")[0].split())
    text = text.partition(": ")[2] or text
    return text[:1].upper() + text[1:]


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0])
    if origin in (Union, UnionType):
        return " or ".join(_type(argument) for argument in arguments if argument is not NoneType)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments if value != "")
    if origin is not None:
        return f"{origin.__name__} of {' to '.join(_type(argument) for argument in arguments)}"
    if isinstance(annotation, type) and not issubclass(annotation, BaseModel):
        return annotation.__name__
    return "mapping"


def _default(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    if value is None or value == "" or isinstance(value, BaseModel) or repr(value) == "PydanticUndefined":
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
