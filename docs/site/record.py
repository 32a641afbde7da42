"""Record what `holdfast demo` prints, as docs/site/demo.txt: `python docs/site/record.py`.

Real output of one run, as it stands where no terminal is. Only the name of the temporary folder is
shortened."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TRANSCRIPT = Path(__file__).with_name("demo.txt")
COMMAND = ("holdfast", "demo")
_FOLDER = re.compile(r"\S*/holdfast-demo-\w+")


def transcript(output: str) -> str:
    """What is kept of the output, below the command."""
    return f"$ {' '.join(COMMAND)}\n" + _FOLDER.sub("/tmp/holdfast-demo-...", output)


def main() -> None:
    """Run the demo, and write what it printed. Ends with the demo's exit code if that is not 0."""
    program = Path(sys.executable).with_name(COMMAND[0])
    done = subprocess.run([program, *COMMAND[1:]], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr)
        sys.exit(done.returncode)
    TRANSCRIPT.write_text(transcript(done.stdout))


if __name__ == "__main__":
    main()
