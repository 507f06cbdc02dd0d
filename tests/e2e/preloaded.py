"""What the service imports as it starts, beside what its command does: half of the time until it is ready."""

from __future__ import annotations

import pydantic.v1
import uvicorn.lifespan.off

from stromboli.discovery import discover

__all__ = ["pydantic", "uvicorn"]

discover()
