"""The lives of a job: the same command continues one, --fresh begins the next under a name of its own.

A checkpoint's id is never written twice, so a new life must not share the old one's names on storage."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from controlplane.cli.errors import CliError
from controlplane.wire.records import plain

if TYPE_CHECKING:
    from controlplane.cli.local.layout import Layout
    from controlplane.core.model import JobSpec


def current_life(layout: Layout, spec: JobSpec, begin_anew: bool, knows_nothing: bool) -> JobSpec:
    """The spec under the name of its present life, or of the next. Raises CliError.

    knows_nothing: what is not in our state folder's etcd is known nowhere."""
    life = int(_read(layout).get("life", 0)) + begin_anew
    lost = knows_nothing and not (layout.state / "etcd").exists()
    while (begin_anew or lost) and _has_checkpoints(spec.storage, _named(spec.job, life)):
        life += 1
    return dataclasses.replace(spec, job=_named(spec.job, life))


def remember(layout: Layout, spec: JobSpec) -> None:
    """Write down the life and the settings that run now."""
    path = layout.state / "job.json"
    partial = path.with_suffix(".part")
    life = spec.job.rpartition("-life")[2] if spec.job != layout.job else 0
    partial.write_text(json.dumps({"life": int(life), "spec": _settings(spec)}, indent=2))
    partial.replace(path)


def has_changed(layout: Layout, spec: JobSpec) -> bool:
    """Whether this job last ran with other settings."""
    before = _read(layout).get("spec")
    return before is not None and before != _settings(spec)


def _settings(spec: JobSpec) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(json.dumps(plain(spec)))
    return settings


def _named(job: str, life: int) -> str:
    return f"{job[:52]}-life{life}" if life else job


def _read(layout: Layout) -> dict[str, Any]:
    path = layout.state / "job.json"
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise CliError(f"{path} is damaged ({error}): remove it, or give another --state-dir") from error
    return found if isinstance(found, dict) else {}


def _has_checkpoints(storage: str, job: str) -> bool:
    if not storage:
        return False
    from agent.checkpoint import names
    from agent.checkpoint.store import Store

    return bool(Store.open(storage).list(names.manifests(job)))
