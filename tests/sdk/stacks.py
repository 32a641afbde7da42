"""Show where a rank is stuck that a test waits for in vain."""

from __future__ import annotations

import time

from holdfast.ipc import traces

_CHARS = 3000
_WRITES_S = 0.5


def of(pid: int, page: str) -> str:
    """Its main thread's Python stack, if it writes one beside its progress page, and the kernel's view."""
    why = traces.ask(pid)
    if why:
        return why
    time.sleep(_WRITES_S)
    file = traces.beside(page)
    python = file.read_text(errors="replace")[-_CHARS:] if file.exists() else "it wrote no stack"
    return f"{python}\n{traces.native(pid)[-_CHARS:]}"
