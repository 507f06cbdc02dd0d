"""Arguments as strings and floats: each means what it would mean as its scalar, in every plugin and action."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stromboli.api.errors import PolicyError
from stromboli.discovery import discover
from stromboli.policy.document import load_policy
from stromboli.policy.evictions import EvictionSettings
from stromboli.policy.scalars import validated

MODELS: dict[str, type[BaseModel]] = {
    **{name: model for models in discover().argument_models() for name, model in models.items() if model is not None},
    "evictions": EvictionSettings,
}
#: as YAML has it without quotes, and what that is
SCALARS = {
    "true": True,
    "off": False,
    "0": 0,
    "1": 1,
    "8": 8,
    "0x10": 16,
    "010": 8,
    "0.5": 0.5,
    "1.0": 1.0,
    "60.0": 60.0,
}
#: text is a quantity in its own unit, as for Volcano
QUANTITIES = {"be_cpu", "be_mem"}


def places(annotation: Any) -> Iterator[tuple[Any, ...]]:
    """The paths below a value of this type where a scalar other than text may stand; a list has one entry."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            if name not in QUANTITIES:
                yield from (((field.alias or name), *rest) for rest in places(field.annotation))
        return
    origin, within = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from places(within[0])
    elif origin is dict:
        yield from (("nvidia.com/gpu", *rest) for rest in places(within[1]))
    elif origin is list:
        yield from ((0, *rest) for rest in places(within[0]))
    elif origin in (Union, type(int | None)):
        yield from places(next(member for member in within if member is not type(None)))
    elif origin is not Literal and annotation is not str:
        yield ()


def put(path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    return [put(path[1:], value)] if path[0] == 0 else {path[0]: put(path[1:], value)}


@pytest.mark.parametrize("name", MODELS)
def test_a_string_means_what_its_scalar_means(name: str) -> None:
    model, taken = MODELS[name], 0
    for path in places(model):
        for text, value in SCALARS.items():
            try:
                expected = model.model_validate(put(path, value))
            except ValidationError:
                continue
            taken += 1
            assert validated(model, put(path, text)) == expected, (path, text)
    assert taken or not any(places(model)), "no field of it takes any of the scalars"


def test_a_whole_number_is_an_integer_however_it_is_written() -> None:
    taken = 0
    for model in MODELS.values():
        for path in places(model):
            if (expected := accepted(model, put(path, 10))) is None or accepted(model, put(path, 10.0)) is not None:
                continue
            taken += 1
            for given in (10.0, "10.0", "1e1", "1e+01"):
                assert validated(model, put(path, given)) == expected, (path, given)
            assert_refused(model, put(path, 10.5))
            assert_refused(model, put(path, "10.5"))
    assert taken > 30


def accepted(model: type[BaseModel], given: Any) -> BaseModel | None:
    try:
        return model.model_validate(given)
    except ValidationError:
        return None


def assert_refused(model: type[BaseModel], given: Any) -> None:
    with pytest.raises(ValidationError):
        validated(model, given)


class Theirs(BaseModel):
    """Of a plugin that knows nothing of this."""

    model_config = ConfigDict(extra="forbid", strict=True)

    class Part(BaseModel):
        model_config = ConfigDict(strict=True)
        share: float = Field(ge=0)
        level: Literal[1, 2] = 1

    on: bool = False
    label: str = ""
    either: int | str = 0
    parts: list[Part] = Field(default_factory=list)
    most: dict[str, int] = Field(default_factory=dict)


def load(arguments: str, switches: str = "") -> Any:
    policy = load_policy(
        f"actions: allocate\ntiers: [{{plugins: [{{name: theirs, {switches} arguments: {arguments}}}]}}]",
        known_actions={"allocate": None},
        known_plugins={"theirs": Theirs},
    )
    return policy.tiers[0].plugins[0]


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True", "y", "yes", "on"])
def test_booleans_are_those_of_yaml_and_of_go(text: str) -> None:
    option = load(f"{{on: '{text}'}}", f"enabledVictim: '{text}',")
    assert option.arguments == Theirs(on=True)
    assert "victim" in option.enabled


def test_text_stays_text_and_everything_within_is_read() -> None:
    given = "{label: '1', either: '1', parts: [{share: '1e-1', level: '2'}], most: {a: '3'}}"
    assert load(given).arguments == Theirs(
        label="1", either="1", parts=[Theirs.Part(share=0.1, level=2)], most={"a": 3}
    )


@pytest.mark.parametrize(
    ("given", "problem"),
    {
        "{on: '2'}": "on: input should be a valid boolean, not '2'",
        "{parts: [{share: '-0.5'}]}": "parts[0].share: input should be greater than or equal to 0, not -0.5",
        "{parts: [{share: half}]}": "parts[0].share: input should be a valid number, not 'half'",
        "{most: {a: '1.5'}}": "most.a: input should be a valid integer, not '1.5'",
        "{most: {a: 1.5}}": "most.a: input should be a valid integer, not 1.5",
        "{most: {a: true}}": "most.a: input should be a valid integer, not True",
        "{most: {a: ''}}": "most.a: input should be a valid integer, not ''",
    }.items(),
)
def test_what_is_no_such_scalar_is_named(given: str, problem: str) -> None:
    with pytest.raises(PolicyError) as caught:
        load(given)
    assert caught.value.problems == [f"tiers[0].plugins[0].arguments.{problem}"]
