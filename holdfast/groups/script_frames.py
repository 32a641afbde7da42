"""Find the line of the user's script within a stack of Python frames."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

_FRAMES_MAX = 200
_SDK = str(Path(__file__).parents[1]) + "/"
_EXAMPLES = _SDK + "examples/"

Place = tuple[str, str, int]
"""File, function and line of a frame."""


def outwards(frame: FrameType | None) -> Iterator[Place]:
    """The places of a stack, innermost first."""
    for _ in range(_FRAMES_MAX):
        if frame is None:
            return
        yield frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno
        frame = frame.f_back


def raised_through(error: BaseException) -> Iterator[Place]:
    """The places that an error has passed, innermost first."""
    step, found = error.__traceback__, []
    while step is not None:
        found.append((step.tb_frame.f_code.co_filename, step.tb_frame.f_code.co_name, step.tb_lineno))
        step = step.tb_next
    yield from reversed(found[-_FRAMES_MAX:])


def innermost(places: Iterable[Place]) -> list[dict[str, Any]]:
    """The script's innermost place, as torch's flight recorder writes frames; []: the script is not among
    them."""
    for file, name, line in places:
        if _is_the_scripts(file):
            return [{"filename": file, "name": name, "line": line}]
    return []


@lru_cache(maxsize=4096)
def _is_the_scripts(file: str) -> bool:
    ours = file.startswith(_SDK) and not file.startswith(_EXAMPLES)
    return not ours and "/torch/" not in file and not file.startswith("<frozen ")
