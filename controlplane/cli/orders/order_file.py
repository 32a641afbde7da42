"""Pass the command of a job from the trainer's container to one beside it that may submit.

A trainer's image has neither gRPC nor the right to submit. So node 0 of a TrainJob writes an order (the words
of `holdfast submit`) into a folder that both containers share; `holdfast submit --order FOLDER` carries it
out and writes an answer beside it, which names the order that it is about. Standard library only."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PAUSE_S = 0.2
_BYTES_MAX = 1 << 20


class BadOrderError(Exception):
    """A file in the folder is not one of these. The message says which."""


@dataclass(frozen=True, slots=True)
class SubmitOrder:
    """What to submit: flags of a job, its script and the script's arguments. `name` is used only once."""

    name: str
    words: tuple[str, ...]


def place(folder: Path, words: Sequence[str]) -> str:
    """Write an order, and return its name. Raises OSError."""
    name = os.urandom(8).hex()
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "order.json", {"name": name, "words": list(words)})
    return name


def placed(folder: Path) -> SubmitOrder | None:
    """The order in this folder; None: there is none yet. Raises BadOrderError, OSError."""
    found = _read(folder / "order.json")
    if found is None:
        return None
    name, words = found.get("name"), found.get("words")
    if not isinstance(name, str) or not isinstance(words, list) or not _are_text(words):
        raise BadOrderError(f"{folder / 'order.json'} is no order: it needs a name and a list of words")
    return SubmitOrder(name, tuple(words))


def _are_text(words: list[object]) -> bool:
    return all(isinstance(word, str) for word in words)


def answer(folder: Path, name: str, refusal: str) -> None:
    """Say what became of an order: `refusal` is the reason why it was not submitted, "" if it was."""
    _write(folder / "answer.json", {"name": name, "refusal": refusal})


def answered(folder: Path, name: str) -> str | None:
    """The refusal of this order ("": it was submitted); None: there is no answer yet. Raises BadOrderError,
    OSError."""
    found = _read(folder / "answer.json")
    if found is None or found.get("name") != name:
        return None
    return str(found.get("refusal", ""))


def await_answer(folder: Path, name: str) -> str:
    """Wait for the answer to an order. Raises BadOrderError, OSError."""
    while (refusal := answered(folder, name)) is None:
        time.sleep(PAUSE_S)
    return refusal


def _write(path: Path, content: dict[str, object]) -> None:
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(content))
    draft.replace(path)


def _read(path: Path) -> dict[str, object] | None:
    try:
        with path.open("rb") as file:
            text = file.read(_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    if len(text) > _BYTES_MAX:
        raise BadOrderError(f"{path} is larger than {_BYTES_MAX} bytes")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BadOrderError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadOrderError(f"{path} is not a JSON object")
    return found
