"""`stromboli plugins`: what a policy can name, read from the code."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel

from stromboli.discovery import discover
from stromboli.framework.plugin import Plugin

_LIFE = frozenset(("open", "close"))
_HEADER = """\
# Plugins

Every plugin with the extension points that it takes part in and the arguments that a policy can give it. This page is
written by `stromboli plugins > docs/plugins.md`.
"""


def plugins(
    plugins_dir: Annotated[Path | None, typer.Option(help="Folder of Python files with more plugins.")] = None,
) -> None:
    """Print every plugin with its extension points and arguments, as Markdown."""
    print(page(plugins_dir), end="")


def page(plugins_dir: Path | None = None) -> str:
    """The page of all plugins."""
    found = discover(plugins_dir).plugins
    return "\n".join([_HEADER, *(line for name in sorted(found) for line in _section(found[name]))])


def points(plugin: type[Plugin]) -> list[str]:
    """The extension points that a plugin takes part in, in the order of `Plugin`."""
    return [
        name
        for name, method in vars(Plugin).items()
        if callable(method)
        and not name.startswith("_")
        and name not in _LIFE
        and not isinstance(method, type)
        and getattr(plugin, name) is not getattr(Plugin, name)
    ]


def _section(plugin: type[Plugin]) -> Iterator[str]:
    module = plugin.__module__.removesuffix(".plugin")
    text = (importlib.import_module(module).__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
    yield f"## {plugin.name}\n"
    text = text.partition(": ")[2] or text
    yield text[0].upper() + text[1:]
    yield ""
    yield f"Extension points: {', '.join(f'`{point}`' for point in points(plugin))}.\n"
    if plugin.Arguments is None:
        return
    yield "| argument | type | default | |"
    yield "|---|---|---|---|"
    for name, field in plugin.Arguments.model_fields.items():
        description = " ".join((field.description or "").split())
        yield f"| `{field.alias or name}` | {_type(field.annotation)} | {_default(field)} | {description} |"
    yield ""


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
