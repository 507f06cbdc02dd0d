"""Arguments of actions and plugins, checked by their models: all mistakes, each with a suggestion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError, model_validator
from pydantic_core import ErrorDetails

from stromboli.api.validation import nearest
from stromboli.policy.scalars import validated

Model = TypeVar("Model", bound=BaseModel)
#: name of a plugin or action -> the model of its arguments, None if it takes none
ArgumentModels = Mapping[str, type[BaseModel] | None]

#: similarity, of 1, from which names of two plugins' arguments are taken for each other
_SAME = 0.85


class AnyCase(BaseModel):
    """The keys of a nested argument may differ in upper and lower case, where Volcano reads them so."""

    @model_validator(mode="before")
    @classmethod
    def _as_named(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        names = {name.casefold(): name for name in names_of(cls)}
        meant = {key: names.get(str(key).casefold(), key) for key in given}
        times = Counter(meant.values())
        return {meant[key] if times[meant[key]] == 1 else key: value for key, value in given.items()}


def checked(model: type[Model], arguments: Mapping[str, Any]) -> tuple[Model | None, list[ErrorDetails]]:
    """The model of arguments, and all errors in them; no model if there are any. A null is an absent argument.

    Validators of a whole model run, and report a first error, only if every field is valid. So rejected arguments are
    left out, and the others validated again.
    """
    found: list[ErrorDetails] = []
    left_out: set[str] = set()
    known = names_of(model)
    arguments = {key: value for key, value in arguments.items() if value is not None or key not in known}
    while True:
        try:
            made = validated(model, {key: value for key, value in arguments.items() if key not in left_out})
        except ValidationError as error:
            news = [each for each in error.errors(include_url=False) if not _follows(each, left_out, found)]
            rejected = {argument_of(each) for each in news} & arguments.keys()
            found += news
            left_out |= rejected
            if not rejected:
                return None, found
        else:
            return (None if found else made), found


def argument_of(error: ErrorDetails) -> str:
    """The argument that an error is about; empty if it is about all of them."""
    loc = error["loc"] or (error.get("ctx", {}).get("argument", ""),)
    return str(loc[0])


def _follows(error: ErrorDetails, left_out: Collection[str], found: Iterable[ErrorDetails]) -> bool:
    """Whether an error is known already, or only due to arguments that were left out."""
    if argument_of(error) in left_out or any(key in error["msg"] for key in left_out):
        return True
    return any((each["loc"], each["msg"]) == (error["loc"], error["msg"]) for each in found)


def names_of(model: type[BaseModel]) -> list[str]:
    """The arguments of a model, as policies name them."""
    return [info.alias or key for key, info in model.model_fields.items()]


def names_at(model: type[BaseModel], loc: Sequence[int | str]) -> list[str]:
    """The keys that are known at a place within the arguments of a model."""
    models = [model]
    for key in loc:
        if isinstance(key, str):
            fields = (info for each in models for name, info in each.model_fields.items() if key in (name, info.alias))
            models = [found for info in fields for found in _models_in(info.annotation)]
    return [name for each in models for name in names_of(each)]


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def of_another_plugin(found: str, allowed: Collection[str], plugins: ArgumentModels) -> str:
    """`'P.Name' of the plugin 'P'`, where another plugin has an argument like one that is unlike all allowed."""
    if nearest(_last(found), [_last(each) for each in allowed], _SAME):
        return ""
    for plugin, model in plugins.items():
        names = {_last(each): each for each in names_of(model)} if model else {}
        near = nearest(_last(found), names, _SAME)
        if near:
            return f"{names[near]!r} of the plugin {plugin!r}"
    return ""


def _last(argument: str) -> str:
    """The part of an argument's name that tells it from others of its plugin."""
    return argument.rpartition(".")[2]
