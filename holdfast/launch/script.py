"""Turn an interpreter into a user's script, as `python script.py` or `python -m module` would run it.

Modules that were imported before stay imported: that is the point. Standard library and holdfast.ipc only."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import importlib.machinery
import importlib.util
import io
import json
import linecache
import os
import random
import runpy
import socket
import sys
import traceback
import types
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.ipc import traces
from holdfast.ipc.frames import encode
from holdfast.ipc.messages.rank import VERSION, Raised
from holdfast.launch import imports
from holdfast.launch.output import LogOutput

if TYPE_CHECKING:
    from collections.abc import Mapping

FRESH_PREFIXES = (
    "PYTHON",
    "LD_",
    "MALLOC_",
    "GLIBC_",
    "OMP_",
    "KMP_",
    "GOMP_",
    "MKL_",
    "OPENBLAS_",
    "ATEN_",
    "NPY_",
    "NUMEXPR_",
    "TORCH_",
    "PYTORCH_",
)
"""Variables that have an effect only when an interpreter or a library starts."""
HASHING = {"PYTHONHASHSEED": "0"}
"""Where neither the job nor the node says otherwise, so that the order of a set of texts is the same in all
processes of a job, also in one that replaces another."""
_APPLIED_LATER = frozenset({"OMP_NUM_THREADS", "PYTHONUNBUFFERED"})
_ACK_TIMEOUT_S = 1.0
_TEXT_MAX = 40_000
"""Characters of a message or traceback that are sent: each may take 12 bytes of a frame's 1 MiB."""


@dataclass(frozen=True, slots=True)
class RunOrder:
    """What to become.

    - `argv`: the script or module, and its arguments.
    - `env`: the whole environment.
    - `module`: run it as `python -m`.
    - `no_python`: it is a program, not a Python script."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    module: bool = False
    no_python: bool = False

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> RunOrder:
        """The order in a `run` frame. Raises ValueError if it is malformed."""
        argv, env, cwd = message.get("argv"), message.get("env"), message.get("cwd")
        if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
            raise ValueError(f"run: argv must be a list of strings, not {argv!r}")
        if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
            raise ValueError("run: env must map names to strings")
        if not isinstance(cwd, str):
            raise ValueError(f"run: cwd must be a path, not {cwd!r}")
        return cls(
            tuple(argv), HASHING | env, cwd, bool(message.get("module")), bool(message.get("no_python"))
        )


def fresh_causes(before: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """The variables because of which an interpreter started with `before` cannot serve `wanted`."""
    names = {name for name in (*before, *wanted) if name.startswith(FRESH_PREFIXES)} - _APPLIED_LATER
    names |= imports.frozen().keys()
    causes = [name for name in names if before.get(name) != wanted.get(name)]
    threads = wanted.get("OMP_NUM_THREADS", "1")
    if before.get("OMP_NUM_THREADS") != wanted.get("OMP_NUM_THREADS") and not threads.isdecimal():
        causes.append("OMP_NUM_THREADS")
    return sorted(causes)


def open_output() -> None:
    """Make standard output and error unbuffered, as `python -u` does."""
    sys.stdout = sys.__stdout__ = _unbuffered(1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _unbuffered(2)  # type: ignore[misc]


def _unbuffered(descriptor: int) -> io.TextIOWrapper:
    errors = "backslashreplace" if descriptor == 2 else "strict"
    raw: Any = LogOutput(descriptor)
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, write_through=True)


def become(order: RunOrder) -> None:
    """Run the script to its end. Ends by SystemExit, as the script would."""
    inherited = dict(os.environ)
    os.environ.clear()
    os.environ.update(order.env)
    try:
        traces.register(order.env.get("HOLDFAST_BOARD", ""))
        os.chdir(order.cwd)
        _apply_threads(inherited, order.env)
        _reseed()
        sys.argv = list(order.argv)
        _execute_to_its_end(order)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        trace = _own_frames_removed(error.__traceback__)
        report(error.with_traceback(trace))
        _show(error, trace)
        raise SystemExit(1) from None


def _show(error: BaseException, trace: types.TracebackType | None) -> None:
    """Print the exception as the script would print it, at once if that is the interpreter's own way.

    A SessionError is printed once for all ranks, so torch's hook, which names one rank, is left out for
    it."""
    torchs = _kind(error) == "holdfast.SessionError" and "torch.distributed" in sys.excepthook.__module__
    if (torchs or sys.excepthook is sys.__excepthook__) and sys.stderr is not None:
        sys.stderr.write(_formatted(error))
    else:
        sys.excepthook(type(error), error, trace)


def _formatted(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _execute_to_its_end(order: RunOrder) -> None:
    """Run the script. Raises SessionError if it ended well but never used its session."""
    try:
        _execute(order)
    except SystemExit as end:
        if end.code:
            raise
    misuse = sys.modules.get("holdfast.reentry.misuse")
    if misuse is not None:
        misuse.check_begun()


def _execute(order: RunOrder) -> None:
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    if order.module:
        sys.path.insert(0, os.getcwd())
        imports.yield_to(os.getcwd())
        run_as_main: Any = runpy._run_module_as_main  # type: ignore[attr-defined]
        run_as_main(order.argv[0], alter_argv=True)
    elif (Path(order.argv[0]) / "__main__.py").exists() or order.argv[0].endswith((".zip", ".pyz")):
        runpy.run_path(order.argv[0], run_name="__main__")
    else:
        _run_file(order.argv[0], main)


def _run_file(script: str, main: types.ModuleType) -> None:
    path = os.path.abspath(script)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"the script {script} does not exist (looked for {path})")
    folder = os.path.dirname(os.path.realpath(path))
    sys.path.insert(0, folder)
    imports.yield_to(folder)
    with io.open_code(path) as file:
        text = file.read()
    code = compile(text, path, "exec")
    _keep(path, text)
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    main.__dict__.update(__file__=path, __cached__=None, __loader__=loader, __spec__=None)
    exec(code, main.__dict__)


def _keep(path: str, text: bytes) -> None:
    """Have tracebacks show this text of the script, though the file is edited while it runs."""
    with contextlib.suppress(SyntaxError, UnicodeDecodeError):  # then it has not been compiled either
        lines = io.StringIO(importlib.util.decode_source(text)).readlines()
        linecache.cache[path] = (len(text), None, lines, path)


def _reseed() -> None:
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()


def _apply_threads(before: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Set the numbers of threads that the libraries would have read from the environment at their start."""
    count = wanted.get("OMP_NUM_THREADS", "")
    torch = sys.modules.get("torch")
    if torch is not None and count.isdecimal() and count != before.get("OMP_NUM_THREADS"):
        torch.set_num_threads(max(1, int(count)))
    blas = wanted.get("OPENBLAS_NUM_THREADS", "") or count
    _set_openblas_threads(int(blas) if blas.isdecimal() else len(os.sched_getaffinity(0)))


def _set_openblas_threads(count: int) -> None:
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "openblas" in line.lower()}
    for path in sorted(paths):
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_"):
            with contextlib.suppress(AttributeError):
                getattr(library, name)(ctypes.c_int(max(1, count)))
                break


def _own_frames_removed(trace: types.TracebackType | None) -> types.TracebackType | None:
    own = {__file__, runpy.__file__, "<frozen runpy>"}
    while trace is not None and trace.tb_frame.f_code.co_filename in own:
        trace = trace.tb_next
    return trace


def report(error: BaseException) -> None:
    """Report the exception that left the script to the agent, and wait until it is noted, for a moment.

    If the agent is away, only the log and the exit code show it."""
    rank_socket, member = os.environ.get("HOLDFAST_GATE"), os.environ.get("HOLDFAST_MEMBER")
    if not rank_socket or not member:
        return
    message = Raised(
        version=VERSION,
        member=member,
        pid=os.getpid(),
        exception=_kind(error),
        message=_words(error)[:_TEXT_MAX],
        traceback=_formatted(error)[-_TEXT_MAX:],
    )
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ACK_TIMEOUT_S)
        connection.connect(rank_socket)
        connection.sendall(encode(message.encode()))
        connection.recv(1)


def _kind(error: BaseException) -> str:
    """The name of the exception's type. The session's own get a prefix: a script may have types of these
    names."""
    kind = type(error)
    own = kind.__module__ == "holdfast.errors"
    return f"holdfast.{kind.__qualname__}" if own else kind.__qualname__


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as trouble:  # a user's __str__ may raise anything
        return f"(its message cannot be read: {type(trouble).__name__})"


def exec_program(order: RunOrder) -> None:
    """Become a program that is not a Python script. Raises OSError when it cannot be started."""
    os.chdir(order.cwd)
    os.execvpe(order.argv[0], list(order.argv), order.env)


def exec_fresh(message: Mapping[str, Any], env: dict[str, str]) -> None:
    """Start this interpreter again with this environment and become the script. The pid stays."""
    descriptor = os.memfd_create("holdfast-order", 0)
    os.write(descriptor, json.dumps(message).encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.set_inheritable(descriptor, True)
    argv = [sys.executable, "-P", "-m", "holdfast.launch.warm", "--fresh", str(descriptor)]
    os.execve(sys.executable, argv, env)


def read_fresh(descriptor: int) -> RunOrder:
    """The order that `exec_fresh` left for its successor."""
    with open(descriptor, "rb") as file:
        return RunOrder.of(json.loads(file.read()))
