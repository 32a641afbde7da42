"""Ask a feed of known vulnerabilities about every distribution in requirements.lock, by pip-audit.

Exit code 0: asked, none known. 1: some are known, and listed. 3: it could not ask (no pip-audit, no network),
which is reported and does not count as a pass."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import lock

CLEAN, KNOWN, NOT_ASKED = 0, 1, 3
OSV = "https://api.osv.dev/v1/query"
TIMEOUT_S = 15


def audit(feed: str, path: Path) -> tuple[int, str]:
    """Ask the feed (an OSV API) about the lock at `path`. Returns the exit code and the message."""
    if find_spec("pip_audit") is None:
        return NOT_ASKED, "pip-audit is not installed: pip install pip-audit"
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "-r",
        str(path),
        "--disable-pip",
        "--require-hashes",
        "-f",
        "json",
    ]
    command += ["--progress-spinner", "off", "-s", "osv", "--osv-url", feed, "--timeout", str(TIMEOUT_S)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        rows = json.loads(asked.stdout)["dependencies"]
    except (ValueError, KeyError):
        why = asked.stderr.strip().rpartition("\n")[2] or f"it ended with code {asked.returncode}"
        return NOT_ASKED, f"pip-audit could not ask {feed}: {why}"
    unasked = [row["name"] for row in rows if "skip_reason" in row]
    bad = [f"{row['name']} {row['version']}: {vuln['id']}" for row in rows for vuln in row.get("vulns", ())]
    if bad:
        return KNOWN, "known vulnerabilities:\n  " + "\n  ".join(bad)
    if unasked or not rows:
        return (
            NOT_ASKED,
            f"pip-audit asked about {len(rows) - len(unasked)} of {len(rows)}: not {', '.join(unasked)}",
        )
    return CLEAN, f"{len(rows)} distributions, no known vulnerability"


def main() -> None:
    """Print the result, and exit with its code."""
    code, words = audit(sys.argv[1] if len(sys.argv) > 1 else OSV, lock.LOCK)
    print(f"NOT AUDITED: {words}" if code == NOT_ASKED else words, file=sys.stderr if code else sys.stdout)
    sys.exit(code)


if __name__ == "__main__":
    main()
