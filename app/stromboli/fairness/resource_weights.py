"""Arguments of plugins that weigh resources: cpu, memory, and listed ones, each with its own weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from stromboli.framework.plugin.base import Arguments


class ResourceWeights(Arguments):
    """Base of such arguments, with the fields `cpu`, `memory` and `resources`.

    `PREFIX.resources.NAME` sets the weight (default 1) of a resource in the list `PREFIX.resources`.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int]

    #: the prefix of `.resources`
    prefix: ClassVar[str]

    if TYPE_CHECKING:
        cpu: int
        memory: int
        resources: str

    @model_validator(mode="after")
    def _names_resources(self) -> Self:
        for key in self.__pydantic_extra__:
            if not key.startswith(self._key("")):
                raise PydanticCustomError("extra_forbidden", "unknown argument '{argument}'", {"argument": key})
            if key not in map(self._key, self.named):
                raise PydanticCustomError(
                    "value_error",
                    "has no effect: the resource is not in {prefix}.resources",
                    {"argument": key, "prefix": self.prefix},
                )
        return self

    def _key(self, resource: str) -> str:
        return f"{self.prefix}.resources.{resource}"

    @property
    def named(self) -> list[str]:
        """The resources listed in `resources`, without blanks and empty entries."""
        return [name for part in self.resources.split(",") if (name := part.strip())]

    def weights(self) -> dict[str, int]:
        """The weight of each resource that counts; negative weights count as 1."""
        given = {name: self.__pydantic_extra__.get(self._key(name), 1) for name in self.named}
        given |= {"cpu": self.cpu, "memory": self.memory}
        return {name: 1 if weight < 0 else weight for name, weight in given.items()}
