"""Have the compiler that torch.compile runs leave whole files or none, in a folder of Holdfast's ranks.

inductor keeps what it has compiled on disk, and takes each file that is there for whole. Its own files it
renames into place; libraries and headers the C++ compiler writes in place. A process that is killed meanwhile
leaves a part, and each later one that loads it is ended by a signal. If the part is one of the libraries with
which inductor tries what this CPU can do, the later ones take it for a CPU that cannot, and compute other
bits.

So inductor gets a compiler that writes beside the place and then renames, and a folder where no other one has
written, unless the user has chosen one (TORCHINDUCTOR_CACHE_DIR). The folder outlives the job: a new process
finds there what the one before it has compiled."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

FOLDER = "TORCHINDUCTOR_CACHE_DIR"
OWN = "holdfast"
"""Below torch's default folder."""
_INDUCTOR = "torch._inductor.compile_fx"
_KINDS = ("clang", r"gcc|g\+\+|gnu-c\+\+")
"""torch recognises a compiler by such words anywhere in its path."""
_SCRIPT = """#!/bin/sh
# Written by Holdfast. It runs the compiler, which writes beside the place of its output, and renames what is
# whole: a compiler that is killed leaves nothing that another process takes for whole.
left=$# out=
while [ "$left" -gt 0 ]; do
  word=$1 left=$((left - 1))
  shift
  if [ "$word" = -o ] && [ "$left" -gt 0 ] && [ ! -c "$1" ]; then
    out=$1 left=$((left - 1))
    shift
    set -- "$@" -o "$out.$$.part"
  else
    set -- "$@" "$word"
  fi
done
{compiler} "$@"
code=$?
[ -z "$out" ] && exit "$code"
if [ "$code" = 0 ] && mv -f "$out.$$.part" "$out"; then exit 0; fi
rm -f "$out.$$.part"
[ "$code" = 0 ] && exit 1
exit "$code"
"""


def in_use() -> bool:
    """Whether this process has compiled with inductor, or can be about to."""
    return _INDUCTOR in sys.modules


def leave_whole_files() -> None:
    """Call it where dynamo begins to compile, in the thread that does: torch's settings differ by thread."""
    if not in_use():
        return
    from torch._inductor import config
    from torch._inductor.runtime import cache_dir_utils

    default = cache_dir_utils.default_cache_dir()
    if os.environ.get(FOLDER, default) == default:  # torch has set it there itself
        os.environ[FOLDER] = os.path.join(default, OWN)
    settings: Any = config.cpp
    wrapped = tuple(each and _wrapper(each, cache_dir_utils.cache_dir()) for each in settings.cxx)
    if wrapped != settings.cxx:
        settings.cxx = wrapped


def _wrapper(compiler: str, folder: str) -> str:
    """The script that runs this compiler; the compiler itself if it is not there, or is such a script."""
    found = shutil.which(compiler)
    if found is None or not os.path.exists("/bin/sh") or Path(found).parent.name.startswith(f"{OWN}-"):
        return compiler
    text = _SCRIPT.replace("{compiler}", shlex.quote(os.path.abspath(found)))
    number = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    path = Path(folder, f"{OWN}-{number}", os.path.basename(compiler))
    if any(bool(re.search(kind, str(path))) != bool(re.search(kind, compiler)) for kind in _KINDS):
        return compiler
    try:
        if not path.exists():
            _write(path, text)
    except OSError:  # nothing can be written there: torch says so itself
        return compiler
    return str(path)


def _write(path: Path, text: str) -> None:
    """Put an executable file in its place at once: other processes may be about to run it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.chmod(0o755)
    draft.replace(path)
