"""Build the files that are made from the code: rules, dashboards, the table of metrics.

`python docs/monitoring/build.py` writes them; `--check` only compares. The code is the source, so that no
alert can name a metric that does not exist."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE)]

import catalog  # noqa: E402
import dashboards  # noqa: E402
import rules  # noqa: E402

FILES = ROOT / "helm" / "holdfast" / "files"
HEADER = "# Built by `python docs/monitoring/build.py` from docs/monitoring/rules.py.\n"


MARKED = "# The chart puts its own values in the place of each @name@.\n"


def built() -> dict[Path, str]:
    """Every file and its content."""
    made = {
        FILES / "rules" / "holdfast.yaml": HEADER + _yaml(rules.groups()),
        FILES / "rules" / "chart.yaml": HEADER + MARKED + _yaml(rules.groups(marked=True)),
        ROOT / "docs" / "metrics.md": catalog.page(),
    }
    for name, dashboard in dashboards.boards().items():
        made[FILES / "dashboards" / f"{name}.json"] = _json(dashboard)
    return made


def _yaml(document: Any) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=110)


def _json(document: Any) -> str:
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def main(words: list[str]) -> int:
    """Write the files; with --check list those that are stale. Returns the exit code."""
    stale = [path for path, text in built().items() if not path.exists() or path.read_text() != text]
    if "--check" in words:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what the code says: run {Path(__file__).name}")
        return int(bool(stale))
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(built()[path])
        print(f"written: {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
