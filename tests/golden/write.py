"""Write the golden samples of one commit: what its own code sends, stores and journals.

    git worktree add ../then fbad7ff
    python tests/golden/write.py ../then tests/golden/fbad7ff
    git worktree remove ../then

Every folder was written in this way. The first argument is a checkout of the commit, whose packages are
imported; the second is a folder that does not exist yet. A sample is never written again: it proves that
bytes which lie on somebody's disk are still read. A commit whose formats gained a field gets a folder
(`samples.py`)."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def main(tree: str, out: str) -> None:
    """Write all of it. Raises FileExistsError where there are samples already."""
    folder = Path(out).resolve()
    folder.mkdir()
    sys.path.insert(0, str(Path(tree).resolve()))
    import controlplane
    import tests

    if not Path(str(controlplane.__file__)).is_relative_to(Path(tree).resolve()):
        sys.exit(f"the packages come from {controlplane.__file__}, not from {tree}")
    tests.__path__.append(str(Path(__file__).resolve().parents[1]))  # the commit need not have this folder
    from tests.golden import stored, told
    from tests.golden.commit import Samples

    samples = Samples()
    _lines(folder / "wire.json", told.wire(samples))
    _lines(folder / "messages.json", told.messages(samples))
    _lines(folder / "etcd.json", told.etcd(samples))
    _lines(folder / "words.json", [told.words()])
    asyncio.run(told.journals(folder))
    (folder / "storage").mkdir()
    _lines(folder / "checkpoints.json", stored.checkpoints(folder / "storage"))
    with tempfile.TemporaryDirectory() as place:
        _lines(folder / "arena.json", [stored.arena(Path(place))])


def _lines(path: Path, samples: Iterable[Any]) -> None:
    """A JSON list, one sample on a line."""
    rows = [json.dumps(each, separators=(",", ":"), ensure_ascii=True) for each in samples]
    path.write_text("[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
