"""Read the variables of a script's functions while they run."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch

from holdfast.clean import loop_locals
from holdfast.clean.looks.bits import COUNTING
from holdfast.clean.looks.reach import OPEN, is_scripts, variables_of

if TYPE_CHECKING:
    from types import FrameType


def frames_to(function: Any) -> list[FrameType]:
    """The script's functions that run, from this elastic function inwards; [] if it is not the script's, or
    does not run."""
    found: list[FrameType] = []
    frame, code = sys._getframe(), getattr(function, "__code__", None)
    while frame is not None:
        if is_scripts(frame.f_globals.get("__name__", "")):
            found.append(frame)
        if frame.f_code is code:
            return found[::-1] if is_scripts(function.__module__) else []
        frame = frame.f_back  # type: ignore[assignment]
    return []


def variables_around(function: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The variables of these functions while they run: those that their loops give no value; and of the
    others, modules and objects of the script's classes."""
    steady: dict[str, Any] = {}
    local: dict[str, Any] = {}
    for frame in frames_to(function):
        values, given = variables_of(frame), loop_locals.given(frame.f_code, frame.f_lineno)
        for name, each in values.items():
            if given is not None and name not in given:
                steady[name] = each
            elif _is_of_script(type(each)):
                local[name] = each
    return steady, local


def _is_of_script(kind: type[Any]) -> bool:
    held = issubclass(kind, (torch.nn.Module, *OPEN, *COUNTING)) or is_scripts(kind.__module__)
    return held and getattr(kind, "__weakrefoffset__", 0) > 0 and not issubclass(kind, type)


def reference(thing: Any) -> weakref.ref[Any] | None:
    """A weak reference to this, if it takes one."""
    return weakref.ref(thing) if getattr(type(thing), "__weakrefoffset__", 0) > 0 else None
