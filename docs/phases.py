"""Draw the phases of a job, in ARCHITECTURE.md, from the table that the core asserts.

`python docs/phases.py` writes the diagram; `--check` fails when it is stale."""

from __future__ import annotations

import sys
from pathlib import Path

from controlplane.core.records.words import TRANSITIONS, JobPhase

PAGE = Path(__file__).resolve().parent.parent / "ARCHITECTURE.md"
BEGIN, END = "<!-- phases: made by docs/phases.py -->\n", "<!-- end of phases -->"
_ENDS = (JobPhase.FAILED, JobPhase.STOPPED)


def diagram() -> str:
    """The table as a Mermaid state diagram. Failing and stopping, possible in every living phase, is one
    sentence."""
    rows = ["```mermaid", "stateDiagram-v2", f"    [*] --> {JobPhase.PENDING}"]
    living = [phase for phase, after in TRANSITIONS.items() if after]
    for phase in living:
        assert set(_ENDS) <= TRANSITIONS[phase], f"{phase} can neither fail nor be stopped: draw that"
        rows += [f"    {phase} --> {after}" for after in JobPhase if after in TRANSITIONS[phase] - set(_ENDS)]
    rows += [f"    {JobPhase.FINISHED} --> [*]", "```", ""]
    ends = " or ".join(f"`{end}`" for end in _ENDS)
    return "\n".join([*rows, f"From every phase but the last three a job may also become {ends}.", ""])


def page(text: str) -> str:
    """The page's text with the current diagram."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + diagram() + END + rest.split(END, 1)[1]


def main() -> int:
    """Write the page; with `--check` report whether it is stale. Returns the exit code."""
    text = PAGE.read_text()
    fresh = page(text)
    if sys.argv[1:] == ["--check"]:
        if fresh != text:
            print(f"{PAGE.name}: the diagram of phases is stale: python docs/phases.py")
        return int(fresh != text)
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
