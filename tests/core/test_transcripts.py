"""Golden transcripts: what happens, and what the core does about it, to be read by people.

HOLDFAST_REWRITE=1 writes them anew from the core as it is; read the difference before you keep it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.transcripts.language import play

FOLDER = Path(__file__).parent.parent / "transcripts"
STORIES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path) -> None:
    told = story.read_text()
    played = play(told)
    if os.environ.get("HOLDFAST_REWRITE"):
        story.write_text(played)
        return
    assert played == told


def test_there_are_stories() -> None:
    assert len(STORIES) > 15
