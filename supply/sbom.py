"""Write build/sbom.cdx.json: the components of Holdfast, as CycloneDX 1.6, from requirements.lock.

Versions are those of the lock, whose own digest is in the document: the lock has the hashes of every file.
Licences and dependencies are read from what is installed. Needs no network."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

sys.path.insert(0, str(Path(__file__).resolve().parent))
import lock

OUT = lock.ROOT / "build" / "sbom.cdx.json"
_LICENCE_MAX = 100


def document() -> dict[str, Any]:
    """The whole bill of materials."""
    text = lock.LOCK.read_text()
    versions = lock.pinned(text)
    versions |= {name: metadata.version(name) for name in lock.CHOSEN_BY_PLATFORM}
    version = metadata.version("holdfast")
    root = {"type": "application", "name": "holdfast", "version": version, "bom-ref": "holdfast"}
    root["licenses"] = [{"license": {"id": "Apache-2.0"}}]  # type: ignore[assignment]
    digest = hashlib.sha256(text.encode()).hexdigest()
    refs = {name: f"pkg:pypi/{name}@{each}" for name, each in versions.items()}
    serial = uuid.uuid5(uuid.NAMESPACE_URL, f"holdfast {version} {lock.inputs()}")
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": root,
            "properties": [{"name": "holdfast:lock", "value": f"sha256:{digest}"}],
        },
        "components": [_component(name, versions[name], refs[name]) for name in sorted(refs)],
        "dependencies": [
            {"ref": "holdfast", "dependsOn": sorted(_needs("holdfast", refs))},
            *({"ref": refs[name], "dependsOn": sorted(_needs(name, refs))} for name in sorted(refs)),
        ],
    }


def _component(name: str, version: str, ref: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "library",
        "name": name,
        "version": version,
        "bom-ref": ref,
        "purl": _purl(ref),
    }
    if licence := _licence(name):
        found["licenses"] = [{"license": {"name": licence}}]
    return found


def _purl(ref: str) -> str:
    return ref.replace("!", "%21").replace("+", "%2B")


def _licence(name: str) -> str:
    """The licence as its author names it, in one line; "" when it is not installed here, or names none."""
    try:
        told = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    said = told.get("License-Expression") or told.get("License") or ""
    classified = [
        row.rpartition(" :: ")[2] for row in told.get_all("Classifier", []) if row.startswith("License ::")
    ]
    line = said.strip().partition("\n")[0]
    return line if 0 < len(line) <= _LICENCE_MAX else "; ".join(classified)


def _needs(name: str, refs: dict[str, str]) -> set[str]:
    """The components that a distribution needs on this machine; for our own, its extras included."""
    try:
        rows = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return set()
    extras = (*lock.EXTRAS, "torch") if name == "holdfast" else ("",)
    needs = [Requirement(row) for row in rows if re.match(r"[A-Za-z0-9]", row)]
    met = [
        need
        for need in needs
        if need.marker is None or any(need.marker.evaluate({"extra": e}) for e in extras)
    ]
    return {refs[each] for need in met if (each := canonicalize_name(need.name)) in refs}


def main() -> None:
    """Write the file."""
    OUT.parent.mkdir(exist_ok=True)
    made = document()
    OUT.write_text(json.dumps(made, indent=1) + "\n")
    print(f"{OUT.relative_to(lock.ROOT)}: {len(made['components'])} components")


if __name__ == "__main__":
    main()
