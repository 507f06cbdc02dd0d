"""The policy's settings of nodes that are asked for: which ProvisioningRequests are made for gangs."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from stromboli.api import duration

#: seconds
_LONGEST = 30 * 86_400.0


class ProvisioningSettings(BaseModel):
    """The key `provisioning` of a policy."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, populate_by_name=True, use_attribute_docstrings=True
    )

    class_name: str = Field(default="", alias="class")
    """The class of the requests, such as `check-capacity.autoscaling.x-k8s.io` or
    `best-effort-atomic-scale-up.autoscaling.x-k8s.io`; without it none are made."""
    parameters: dict[str, str] = Field(default_factory=dict)
    """Parameters of the class."""
    retry: float = Field(default=600.0, ge=1, le=_LONGEST)
    """The time after which a request that was refused or has expired is made again, a duration such as `10m`."""

    @field_validator("retry", mode="before")
    @classmethod
    def _seconds(cls, value: Any) -> Any:
        return duration.parse(value) if isinstance(value, str) else value
