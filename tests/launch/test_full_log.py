"""A disk that is full under a rank's log costs output, and no training."""

from __future__ import annotations

import re

from tests.agent.support import LauncherProcess, folder, until_sync
from tests.e2e.test_bad_moments import small_memory

SCRIPT = """
import pathlib, sys, time
counter, number = pathlib.Path(sys.argv[1]), 0
while True:
    number += 1
    print("line", number, "x" * 1000)
    counter.write_text(str(number))
    time.sleep(0.005)
"""


def test_a_script_goes_on_while_the_disk_of_its_log_is_full() -> None:
    with small_memory("256k") as place, folder() as path:
        launcher = LauncherProcess(path)
        launcher.script(SCRIPT)
        counter, log, ballast = path / "counter", place / "job.1.log", place / "ballast"
        ballast.write_bytes(bytes(128 << 10))
        launcher.client.say(op="spawn", member="job.1", log=str(log))
        launcher.run("job.1", "script.py", str(counter))

        def printed() -> int:
            return int(counter.read_text() or 0) if counter.exists() else 0

        until_sync(lambda: printed() > 300, "more than the disk has room for")
        ballast.unlink()
        found = until_sync(
            lambda: re.search(r"\nholdfast: (\d+) bytes of output are lost.*full\nline", log.read_text()),
            "room again",
        )
        assert int(found[1]) > 100_000
        launcher.close()
