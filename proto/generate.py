"""Generate the protobuf stubs that are committed; with --check, prove that they are fresh."""

from __future__ import annotations

import filecmp
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent


def generate(out: Path) -> list[Path]:
    """Write the stubs of every .proto below proto/ into `out`; returns their paths relative to it."""
    stubs = []
    for source in sorted((ROOT / "proto").rglob("*.proto")):
        flags = [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")]
        if protoc.main(["protoc", f"-I{ROOT / 'proto'}", *flags, str(source)]):
            sys.exit(f"protoc failed on {source.relative_to(ROOT)}")
        stem = source.relative_to(ROOT / "proto").with_suffix("")
        stubs += [stem.with_name(stem.name + end) for end in ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")]
    return stubs


def main() -> None:
    """Generate in place, or with --check compare with what is committed."""
    if "--check" not in sys.argv:
        generate(ROOT)
        return
    with tempfile.TemporaryDirectory() as fresh:
        stale = [
            stub
            for stub in generate(Path(fresh))
            if not (ROOT / stub).exists() or not filecmp.cmp(ROOT / stub, Path(fresh) / stub, shallow=False)
        ]
    if stale:
        sys.exit("stale stubs, run `make proto`: " + ", ".join(map(str, stale)))


if __name__ == "__main__":
    main()
