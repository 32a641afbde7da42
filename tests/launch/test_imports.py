"""What a script imports is there already when it is started the next time; its own modules stay its own."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

from tests.agent.support import LauncherProcess, folder
from tests.e2e.cli_running import until

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
print("warm" if "{library}" in sys.modules else "cold")
import {library}, own_of_the_script
for _ in range(200):
    [[] for _ in range(10000)]
print({library}.__file__)
"""

_THREAD = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
_TAKE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from holdfast.launch import imports
spoilt = imports.take(json.loads(sys.argv[2]))
print(json.dumps([spoilt, sorted(name for name in sys.modules if name.endswith("_of_ours"))]))
"""


class Starts:
    """One script after the other on one launcher."""

    def __init__(self, launcher: LauncherProcess) -> None:
        self.launcher, self.count = launcher, 0

    def run(self, script: Path, **env: str) -> list[str]:
        """Start it; the words that it printed."""
        self.count += 1
        name = f"job.{self.count}"
        self.launcher.spawn(name)
        self.launcher.run(name, str(script), env=env)
        assert self.launcher.client.until("exited", member=name)["code"] == 0, self.launcher.output(name)
        return self.launcher.output(name).split()


def scripts(path: Path, library: str) -> Path:
    path.mkdir(exist_ok=True)
    (path / "own_of_the_script.py").touch()
    (path / "script.py").write_text(SCRIPT.format(library=library))
    return path / "script.py"


def test_what_was_imported_is_preloaded_from_the_second_start_on() -> None:
    with folder() as path:
        launcher = LauncherProcess(path, preload=None)
        starts, script = Starts(launcher), scripts(path / "one", "telnetlib")
        assert starts.run(script)[0] == "cold"
        until(lambda: starts.run(script)[0] == "warm", "the library is preloaded", 60)
        own = scripts(path / "two", "telnetlib")
        (own.parent / "telnetlib.py").touch()
        assert starts.run(own) == ["cold", str(own.parent / "telnetlib.py")]
        assert "own_of_the_script" not in (path / "launcher.log").read_text()
        launcher.close()


def test_what_starts_a_thread_or_is_another_file_is_not() -> None:
    with folder() as path:
        for name, text in (("busy", _THREAD), ("other", ""), ("failing", "1 / 0"), ("good", "")):
            (path / f"{name}_of_ours.py").write_text(text)
        origins = {
            f"{name}_of_ours": str(path / f"{name}_of_ours.py") for name in ("good", "failing", "busy")
        }
        told = subprocess.run(
            [sys.executable, "-c", _TAKE, str(path), json.dumps({"other_of_ours": "/else.py", **origins})],
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(told.stdout) == ["busy_of_ours", ["busy_of_ours", "good_of_ours"]]


def test_nothing_is_learned_where_it_is_said_what_to_preload() -> None:
    with folder() as path:
        launcher = LauncherProcess(path, preload="json")
        starts, script = Starts(launcher), scripts(path / "one", "telnetlib")
        assert starts.run(script)[0] == "cold"
        launcher.client.say(op="spawn", member="job.9", log=str(path / "job.9.log"))
        launcher.client.until("warm", member="job.9")
        assert starts.run(script)[0] == "cold"
        assert "preloaded for the next start" not in (path / "launcher.log").read_text()
        launcher.close()


_OF_A_RANK = "import os; FIRST = int(os.environ.get('RANK', 0)) == 0"
_OF_THE_SCRIPT = "import os; COLOUR = os.getenv('COLOUR_OF_OURS', 'none')"
_READS = """
import os, sys
{before}
print("warm" if "{library}" in sys.modules else "cold")
import {library}
for _ in range(200):
    [[] for _ in range(10000)]
print({library}.{name})
"""


def environment(path: Path, **libraries: str) -> str:
    """A virtual environment that holds these modules, too; its interpreter."""
    venv.create(path, symlinks=True, with_pip=False)
    made = path / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (made / "ours.pth").write_text("\n".join([*(each for each in sys.path if each), str(ROOT)]) + "\n")
    for name, text in libraries.items():
        (made / f"{name}.py").write_text(text)
    return str(path / "bin" / "python")


def test_what_a_library_reads_as_it_is_imported_is_that_of_the_member() -> None:
    with folder() as path:
        python = environment(path / "venv", of_a_rank=_OF_A_RANK, of_the_script=_OF_THE_SCRIPT)
        launcher = LauncherProcess(path, preload=None, python=python)
        starts, script, told = Starts(launcher), path / "script.py", (path / "launcher.log").read_text

        script.write_text(_READS.format(before="", library="of_a_rank", name="FIRST"))
        assert starts.run(script, RANK="1") == ["cold", "False"]
        until(
            lambda: starts.run(script, RANK="1") and "of_a_rank is not preloaded" in told(), "it is refused"
        )
        assert [starts.run(script, RANK="1") for _ in range(3)] == [["cold", "False"]] * 3
        assert told().count("of_a_rank is not preloaded") == told().count("the zygote ended") == 1

        script.write_text(_READS.format(before="", library="of_the_script", name="COLOUR"))
        until(lambda: starts.run(script) == ["warm", "none"], "it is preloaded")
        assert starts.run(script, COLOUR_OF_OURS="red") == ["cold", "red"], "a fresh interpreter"
        sets = "os.environ['COLOUR_OF_OURS'] = 'blue'"
        script.write_text(_READS.format(before=sets, library="of_the_script", name="COLOUR"))
        assert "COLOUR_OF_OURS is set too late" in " ".join(starts.run(script))
        until(lambda: starts.run(script) == ["cold", "blue"], "it is not preloaded")
        launcher.close()
