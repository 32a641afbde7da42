"""Make values.schema.json and README.md of the chart from the comments of its values.yaml.

`python helm/generate.py` writes them; `--check` reports whether they are stale. A comment may end with a hint
in brackets, which tells more than the type of the default: [one of: a, b], [empty or one of: a, b], [min: 1],
[max: 9], [pattern: ...], [tag], [object], [list of strings], [list of objects], [map of strings], [settings:
CLASS of controlplane.settings], [jobs]."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import typing
from pathlib import Path
from typing import Any

import yaml

from controlplane import settings

CHART = Path(__file__).parent / "holdfast"
OWNED = {
    "CoordinatorSettings": {
        "cluster", "listen", "advertise", "metrics", "journal", "address_file", "etcd", "etcd_ca",
        "etcd_cert", "etcd_key", "etcd_user", "etcd_password_file", "etcd_private", "tls_cert", "tls_key",
        "tls_ca", "insecure", "private", "health", "replace_nodes", "replace_after_s", "replace_per_hour",
        "force_replacement", "cordon_hosts", "watch_hosts", "kube_events", "kube_account", "forget_after_s",
        "label_leader", "page", "page_public", "tokens", "journal_bytes", "journal_files", "recording_bytes",
        "recordings", "deny_list",
    },
    "AgentSettings": {
        "cluster", "coordinator", "node", "address", "slots", "run_dir", "shm_dir", "metrics", "address_file",
        "own_launcher", "domain", "ledger", "tls_cert", "tls_key", "tls_ca", "tls_peer_name", "insecure",
        "private", "deny_list",
    },
}  # fmt: skip
"""Settings that the chart sets itself, so that users cannot."""
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_HINT = re.compile(
    r"^(.*?)\s*\[((?:(?:empty or )?one of|min|max|pattern|settings): .+|jobs|tag|object"
    r"|(?:list|map) of \w+)\]$"
)
_JOB_NAME = "^[a-z0-9]([-a-z0-9]{0,36}[a-z0-9])?$"
Path_ = tuple[str, ...]


def comments(text: str) -> dict[Path_, tuple[str, str]]:
    """The comment above each key: (words, hint)."""
    found: dict[Path_, tuple[str, str]] = {}
    above: list[str] = []
    path: list[str] = []
    for line in text.splitlines():
        body = line.strip()
        if body.startswith("#"):
            above.append(body.lstrip("# "))
            continue
        match = re.match(r"^( *)([A-Za-z][\w./-]*):", line)
        if match:
            path = [*path[: len(match[1]) // 2], match[2]]
            words = " ".join(above)
            hint = _HINT.match(words)
            found[tuple(path)] = (hint[1], hint[2]) if hint else (words, "")
        above = []
    return found


def schema(values: Any, notes: dict[Path_, tuple[str, str]], path: Path_ = ()) -> dict[str, Any]:
    """The schema of one value, from its default and its comment."""
    words, hint = notes.get(path, ("", ""))
    about = {"description": words} if words else {}
    kind, _, rest = hint.partition(": ")
    if kind in _HINTS:
        return {**_HINTS[kind](values, rest, notes), **about}
    if isinstance(values, dict):
        parts = {name: schema(each, notes, (*path, name)) for name, each in values.items()}
        return {"type": "object", "additionalProperties": False, "properties": parts, **about}
    return {"type": _TYPES[type(values)], **about}


def _limited(name: str) -> Any:
    return lambda value, rest, _: {"type": _TYPES[type(value)], name: int(rest)}


def _settings(_value: Any, name: str, _notes: Any) -> dict[str, Any]:
    kind = getattr(settings, name)
    types = typing.get_type_hints(kind)
    parts: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.name in OWNED[name]:
            continue
        unit = f", {field.metadata['unit']}" if field.metadata["unit"] else ""
        words = f"{field.metadata['about']} (default: {field.default!r}{unit})"
        parts[field.name] = {"type": _TYPES[types[field.name]], "description": words}
        if field.metadata["minimum"] is not None:
            parts[field.name]["minimum"] = field.metadata["minimum"]
    return {"type": "object", "additionalProperties": False, "properties": parts}


def _jobs(_value: Any, _rest: str, notes: dict[Path_, tuple[str, str]]) -> dict[str, Any]:
    whole = schema(_values()["jobDefaults"], notes, ("jobDefaults",))
    return {
        "type": "object",
        "propertyNames": {"pattern": _JOB_NAME},
        "additionalProperties": {key: each for key, each in whole.items() if key != "description"},
    }


_HINTS: dict[str, Any] = {
    "one of": lambda _, rest, __: {"enum": rest.split(", ")},
    "empty or one of": lambda _, rest, __: {"enum": ["", *rest.split(", ")]},
    "min": _limited("minimum"),
    "max": _limited("maximum"),
    "pattern": lambda _, rest, __: {"type": "string", "pattern": rest},
    "list of strings": lambda *_: {"type": "array", "items": {"type": "string"}},
    "list of objects": lambda *_: {"type": "array", "items": {"type": "object"}},
    "map of strings": lambda *_: {"type": "object", "additionalProperties": {"type": "string"}},
    "object": lambda *_: {"type": "object"},
    "tag": lambda *_: {"type": "string", "pattern": "^[A-Za-z0-9_.-]*$", "not": {"const": "latest"}},
    "settings": _settings,
    "jobs": _jobs,
}


def table(values: Any, notes: dict[Path_, tuple[str, str]], path: Path_ = ()) -> list[str]:
    """The rows of the README's table."""
    if isinstance(values, dict) and values and notes.get(path, ("", ""))[1] == "":
        rows = [row for name, each in values.items() for row in table(each, notes, (*path, name))]
        words = notes.get(path, ("", ""))[0]
        return [f"| **{'.'.join(path)}** | | {words} |", *rows] if words else rows
    words, hint = notes.get(path, ("", ""))
    kind = (
        hint.replace("|", "\\|")
        if hint.startswith(("one of", "empty or", "min", "max", "list", "map"))
        else ""
    )
    said = f"{words} ({kind})" if words and kind else words or kind
    return [f"| `{'.'.join(path)}` | `{json.dumps(values)}` | {said} |"]


def _values() -> Any:
    return yaml.safe_load((CHART / "values.yaml").read_text())


def made() -> dict[Path, str]:
    """The files, with their content."""
    values, notes = _values(), comments((CHART / "values.yaml").read_text())
    top = {"$schema": "http://json-schema.org/draft-07/schema#", **schema(values, notes)}
    top["properties"]["global"] = {"type": "object", "description": "What a parent chart shares; not read."}
    readme = (Path(__file__).parent / "README.head.md").read_text()
    rows = ["| value | default | what it is |", "|---|---|---|", *table(values, notes)]
    return {
        CHART / "values.schema.json": json.dumps(top, indent=2) + "\n",
        CHART / "README.md": readme + "\n".join(rows) + "\n",
    }


def main() -> int:
    """Write the files; with --check compare them. Exit code 1 when one is stale."""
    stale = [path for path, text in made().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            sys.stderr.write(f"{path} is stale: run `python helm/generate.py`\n")
        return 1 if stale else 0
    for path, text in made().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
