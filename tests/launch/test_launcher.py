"""The launcher with real processes: warm interpreters, exits, signals, orphans."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.ipc.frames import encode
from tests.agent.support import Frames, LauncherProcess, alive, folder, until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def launcher() -> Iterator[LauncherProcess]:
    with folder() as path:
        process = LauncherProcess(path)
        yield process
        process.close()


_numbers = iter(range(1, 1000))


@pytest.fixture
def member(launcher: LauncherProcess) -> str:
    name = f"job.{next(_numbers)}"
    launcher.spawn(name)
    launcher.client.until("warm", member=name)
    return name


def test_a_script_runs_as_python_would_run_it(launcher: LauncherProcess, member: str) -> None:
    script = launcher.script(
        "import sys, os, pickle\n"
        "class Thing: pass\n"
        "pickle.loads(pickle.dumps(Thing()))\n"
        "print(__name__, sys.argv, __file__, sys.path[0], os.getcwd(), os.environ.get('MARK'))\n"
        "print(sys.modules['__main__'].Thing is Thing, os.getsid(0) == os.getpid())\n"
    )
    launcher.run(member, "script.py", "--lr", "1", env={"MARK": "yes"})
    assert launcher.client.until("exited", member=member)["code"] == 0
    here = str(launcher.run_dir)
    first, second = launcher.output(member).splitlines()
    assert first == f"__main__ ['script.py', '--lr', '1'] {script} {here} {here} yes"
    assert second == "True True"


@pytest.mark.parametrize(
    ("text", "code", "number"),
    [
        ("import sys; sys.exit(7)", 7, None),
        ("import sys; sys.exit()", 0, None),
        ("import sys; sys.exit('a message')", 1, None),
        ("raise ValueError('no')", 1, None),
        ("import os; os._exit(9)", 9, None),
        ("import os; os.kill(os.getpid(), 9)", None, 9),
        ("import os; os.abort()", None, signal.SIGABRT),
        ("import os, atexit; atexit.register(print, 'at exit'); print(end='last', flush=True)", 0, None),
    ],
)
def test_how_it_ends_is_told(
    launcher: LauncherProcess, member: str, text: str, code: int | None, number: int | None
) -> None:
    launcher.script(text)
    launcher.run(member, "script.py")
    end = launcher.client.until("exited", member=member)
    assert (end["code"], end["signal"]) == (code, number)


def test_a_traceback_shows_the_script_only(launcher: LauncherProcess, member: str) -> None:
    launcher.script("def deep():\n    raise ValueError('no')\ndeep()\n")
    launcher.run(member, "script.py")
    launcher.client.until("exited", member=member)
    output = launcher.output(member)
    assert output.startswith("Traceback (most recent call last):\n")
    assert "ValueError: no" in output
    assert "agent/" not in output
    assert "runpy" not in output


def test_a_module_runs(launcher: LauncherProcess, member: str) -> None:
    package = launcher.run_dir / "package"
    package.mkdir()
    (package / "__main__.py").write_text("import sys; print(__package__, __spec__.name, sys.argv[1:])")
    launcher.run(member, "package", "a", module=True)
    assert launcher.client.until("exited", member=member)["code"] == 0
    assert launcher.output(member) == "package package.__main__ ['a']\n"


def test_a_program_runs_and_a_missing_one_is_named(launcher: LauncherProcess, member: str) -> None:
    launcher.run(member, "/bin/sh", "-c", "echo $MARK; exit 3", env={"MARK": "m"}, no_python=True)
    assert launcher.client.until("exited", member=member)["code"] == 3
    assert launcher.output(member) == "m\n"
    launcher.spawn("job.missing")
    launcher.run("job.missing", "/no/such/program", no_python=True)
    assert "/no/such/program" in launcher.client.until("failed", member="job.missing")["message"]


def test_a_missing_script_is_named(launcher: LauncherProcess, member: str) -> None:
    launcher.run(member, "nowhere.py")
    assert launcher.client.until("exited", member=member)["code"] == 1
    assert "nowhere.py does not exist" in launcher.output(member)


@pytest.mark.parametrize(
    ("env", "seed"), [({}, "0"), ({"NPY_OF_A_FRESH_ONE": "1"}, "0"), ({"PYTHONHASHSEED": "7"}, "7")]
)
def test_texts_hash_alike_in_all_processes_unless_the_job_says_otherwise(
    launcher: LauncherProcess, member: str, env: dict[str, str], seed: str
) -> None:
    """A process that replaces another must walk through a set of texts in the same order."""
    launcher.script("import sys, os; print(hash('a'), sys.flags.hash_randomization, os.getpid())")
    launcher.run(member, "script.py", env=env)
    end = launcher.client.until("exited", member=member)
    hashing = {**os.environ, "PYTHONHASHSEED": seed}
    command = "import sys; print(hash('a'), sys.flags.hash_randomization)"
    expected = subprocess.check_output([sys.executable, "-c", command], env=hashing, text=True)
    assert launcher.output(member) == f"{expected.strip()} {end['pid']}\n"


def test_orders_are_idempotent(launcher: LauncherProcess, member: str) -> None:
    launcher.script("import sys, time; print('once', flush=True); sys.stdin.read(); time.sleep(60)")
    launcher.spawn(member)
    launcher.client.until("warm", member=member)
    for _ in range(3):
        launcher.run(member, "script.py")
    pid = launcher.client.until("running", member=member)["pid"]
    launcher.spawn(member)
    assert launcher.client.until("running", member=member)["pid"] == pid
    until_sync(lambda: launcher.output(member) == "once\n", "the output")
    launcher.client.say(op="signal", member=member, signal=int(signal.SIGKILL))
    launcher.client.until("exited", member=member, signal=9)
    assert launcher.output(member) == "once\n"
    launcher.run(member, "script.py")
    launcher.client.until("exited", member=member, signal=9)


def test_a_members_children_end_with_it(launcher: LauncherProcess, member: str) -> None:
    launcher.script(
        "import subprocess, os\n"
        "a = subprocess.Popen(['sleep', '600'])\n"
        "b = subprocess.Popen(['sleep', '600'], process_group=0)\n"
        "print(a.pid, b.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    launcher.run(member, "script.py")
    launcher.client.until("exited", member=member)
    pids = [int(word) for word in launcher.output(member).split()]
    assert len(pids) == 2
    until_sync(lambda: not any(alive(pid) for pid in pids), "the children's end")


def test_a_new_agent_adopts_and_hears_old_ends(launcher: LauncherProcess, member: str) -> None:
    launcher.script("import time; time.sleep(600)")
    launcher.run(member, "script.py")
    pid = launcher.client.until("running", member=member)["pid"]
    launcher.spawn("job.ended")
    launcher.script("pass", "short.py")
    launcher.run("job.ended", "short.py")
    launcher.client.until("exited", member="job.ended")
    old, launcher.client = launcher.client, launcher.attach()
    assert old.ended()
    old.close()
    launcher.client.until("exited", member="job.ended", code=0)
    hello = launcher.client.until("hello")
    assert {"member": member, "pid": pid, "state": "running"} in hello["members"]
    launcher.client.say(op="forget", member="job.ended")
    launcher.client.close()
    launcher.client = launcher.attach()
    launcher.client.say(op="signal", member=member, signal=9)
    launcher.client.until("exited", member=member)
    assert not any(m.get("member") == "job.ended" for m in launcher.client.heard)


def test_garbage_ends_only_its_connection(launcher: LauncherProcess, member: str) -> None:
    socket_path = launcher.run_dir / "launcher.sock"
    other = encode({"op": "attach", "version": 99})
    for data in (b"\xff" * 16, b"\0\0\0\2[]", b"\0\0\0\3nop", b'\0\0\0\x0e{"op":"attach"', other):
        client = Frames(socket_path)
        client.socket.sendall(data)
        client.socket.shutdown(1)
        assert client.ended()
        client.close()
    launcher.client.say(op="no such thing")
    launcher.client.say(op="run", member="job.unknown", argv=["x"], env={}, cwd="/")
    assert "job.unknown" in launcher.client.until("failed")["message"]
    launcher.client.say(op="run", member=member, argv="not a list", env={}, cwd="/")
    end = launcher.client.until("exited", member=member)
    assert end["code"] == 1
    assert "argv must be a list" in launcher.output(member)


def zygote(launcher: LauncherProcess, *members: int) -> int:
    """Its pid; 0: there is none. `members`: processes that it was forked into, which look alike."""
    children = f"/proc/{launcher.process.pid}/task/{launcher.process.pid}/children"
    with open(children) as file:
        pids = file.read().split()
    for pid in (each for each in pids if int(each) not in members):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as file:  # unless it has ended
            if "--control" in file.read() and os.getsid(int(pid)) == int(pid):
                return int(pid)
    return 0


def test_the_zygote_is_started_again(launcher: LauncherProcess) -> None:
    first = until_sync(lambda: zygote(launcher), "a zygote")
    os.kill(first, signal.SIGKILL)
    launcher.spawn("job.after")
    after = launcher.client.until("warm", member="job.after")["pid"]
    assert zygote(launcher, after) not in (0, first)
    launcher.client.say(op="signal", member="job.after", signal=9)


def test_a_zygote_that_is_stopped_is_replaced(launcher: LauncherProcess) -> None:
    launcher.spawn("job.before")
    before = launcher.client.until("warm", member="job.before")["pid"]
    stopped = zygote(launcher, before)
    os.kill(stopped, signal.SIGSTOP)
    launcher.spawn("job.stopped")
    note = launcher.client.until("note")["message"]
    assert "job.stopped" in note and "its process is stopped (T)" in note
    launcher.client.until("warm", member="job.stopped")
    assert not alive(stopped)
    for name in ("job.before", "job.stopped"):
        launcher.client.say(op="signal", member=name, signal=9)
        launcher.client.until("exited", member=name)


def test_a_zygote_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    with folder() as path:
        python = path / "python"
        python.symlink_to(Path(sys.executable).resolve())
        launcher = LauncherProcess(path, python=str(python))
        launcher.spawn("job.1")
        first = launcher.client.until("warm", member="job.1")["pid"]
        python.unlink()
        os.kill(zygote(launcher, first), signal.SIGKILL)
        launcher.spawn("job.2")
        log = path / "launcher.log"
        until_sync(lambda: "cannot be started" in log.read_text(), "an attempt that fails")
        python.symlink_to(Path(sys.executable).resolve())
        launcher.client.until("warm", member="job.2")
        launcher.close()


def test_members_die_with_a_killed_launcher() -> None:
    with folder() as path:
        launcher = LauncherProcess(path)
        launcher.script("import time; time.sleep(600)")
        pids = []
        for name in ("job.1", "job.2"):
            launcher.spawn(name)
            pids.append(launcher.client.until("warm", member=name)["pid"])
        launcher.run("job.1", "script.py")
        launcher.client.until("running", member="job.1")
        launcher.process.kill()
        launcher.process.wait()
        until_sync(lambda: not any(alive(pid) for pid in pids), "the members' end")
        launcher.close()


def test_an_orphaned_launcher_ends_its_members() -> None:
    with folder() as path:
        launcher = LauncherProcess(path, orphan_timeout_s=1)
        launcher.spawn("job.1")
        pid = launcher.client.until("warm", member="job.1")["pid"]
        launcher.client.close()
        assert launcher.process.wait(60) == 0
        assert not alive(pid)
        assert not (path / "launcher.sock").exists()
        launcher.close()


def test_end_leaves_nothing() -> None:
    with folder() as path:
        launcher = LauncherProcess(path)
        launcher.script("import os, subprocess; subprocess.run(['setsid', 'sleep', '600'])")
        launcher.spawn("job.1")
        launcher.run("job.1", "script.py")
        pid = launcher.client.until("running", member="job.1")["pid"]
        second = subprocess.run(
            [sys.executable, "-P", "-m", "holdfast.launch.launcher", "--run-dir", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert second.returncode == 1
        assert "another launcher uses" in second.stderr
        launcher.client.say(op="end")
        assert launcher.process.wait(60) == 0
        assert not alive(pid)
        assert not (path / "launcher.sock").exists()
        assert not (path / "launcher.pid").exists()
        launcher.close()


def test_a_connection_that_says_nothing_holds_no_launcher_up() -> None:
    with folder() as path:
        launcher = LauncherProcess(path)
        silent = Frames(path / "launcher.sock")
        launcher.client.until("hello")
        launcher.client.say(op="end")
        assert launcher.process.wait(20) == 0
        assert silent.ended()
        silent.close()
        launcher.close()


def test_folder_and_socket_are_private() -> None:
    with folder() as path:
        launcher = LauncherProcess(path)
        assert path.stat().st_mode & 0o777 == 0o700
        assert (path / "launcher.sock").stat().st_mode & 0o777 == 0o600
        launcher.close()


def test_torch_is_imported_once_and_one_thread_forks() -> None:
    with folder() as path:
        launcher = LauncherProcess(path, preload=None)
        launcher.spawn("job.1")
        launcher.spawn("job.2")
        launcher.script(
            "import sys, os, random\n"
            "threads = len(os.listdir('/proc/self/task'))\n"
            "warm = 'torch' in sys.modules and 'torch._dynamo' in sys.modules\n"
            "import torch, numpy\n"
            "a = torch.randn(64, 64); (a @ a).sum()\n"
            "print(warm, threads, torch.get_num_threads())\n"
            "print(random.random())\nprint(numpy.random.rand())\nprint(torch.rand(1).item())\n"
        )
        for name in ("job.1", "job.2"):
            launcher.run(name, "script.py", env={"OMP_NUM_THREADS": "1"})
            assert launcher.client.until("exited", member=name)["code"] == 0
        one, two = launcher.output("job.1").splitlines(), launcher.output("job.2").splitlines()
        assert one[0] == two[0] == "True 1 1"
        assert all(a != b for a, b in zip(one[1:], two[1:], strict=True))
        assert "threads after" not in (path / "launcher.log").read_text()
        launcher.close()


CYCLE = """
import ctypes, os
class Kept:
    def __init__(self):
        self.itself = self
    def __del__(self, write=os.write):
        write(1, b"freed ")
kept = Kept()
if {counted}:
    python = ctypes.pythonapi
    python.PyInterpreterState_Get.restype = ctypes.c_void_p
    python.PyInterpreterState_GetDict.restype = ctypes.c_void_p
    python.PyInterpreterState_GetDict.argtypes = [ctypes.c_void_p]
    shared = python.PyInterpreterState_GetDict(python.PyInterpreterState_Get())
    ctypes.cast(shared, ctypes.py_object).value["__nb_internals_v15_system__"] = object()
"""


@pytest.mark.parametrize(("counted", "at_the_end"), [(True, "freed "), (False, "")])
def test_what_was_preloaded_is_freed_at_the_end_where_nanobind_counts_it(
    monkeypatch: pytest.MonkeyPatch, counted: bool, at_the_end: str
) -> None:
    """Modules made with nanobind report what the interpreter leaves behind as leaked, on every rank."""
    with folder() as path:
        (path / "cycle.py").write_text(CYCLE.replace("{counted}", str(counted)))
        monkeypatch.setenv("PYTHONPATH", str(path))
        launcher = LauncherProcess(path, preload="cycle")
        launcher.script("import gc, sys\nprint('cycle' in sys.modules, gc.get_freeze_count() > 0)\n")
        launcher.spawn("job.1")
        launcher.run("job.1", "script.py")
        assert launcher.client.until("exited", member="job.1")["code"] == 0
        assert launcher.output("job.1") == f"True True\n{at_the_end}"
        launcher.close()
