"""Where a thread is, so that a plugin that does not return can be named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from stromboli.framework.plugin.base import Plugin


def whereabouts(thread: int) -> str:
    """The plugin whose code a thread runs, with the line; outside plugins, the current function."""
    frames = list(_frames(thread))
    for number, frame in enumerate(frames):
        caller = frame.f_locals.get("self")
        # A function that is no method of its plugin is called by what knows the plugin.
        plugin = getattr(caller, "__self__", caller)
        if isinstance(plugin, Plugin):
            return f"plugin {plugin.name}: {_place(frame if plugin is caller else frames[max(0, number - 1)])}"
    return _place(frames[0]) if frames else ""


def _frames(thread: int) -> Iterator[FrameType]:
    """The calls of a thread, the innermost first."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_qualname} ({Path(code.co_filename).name}:{frame.f_lineno})"
