"""Choose between continuing a job and beginning it anew under another name.

The same command continues its job. --fresh begins the next "life": the id of a checkpoint is never written
twice, so a new life must not share the old one's folder on storage, and gets the name `<job>-life<n>`. A job
whose state folder was lost also begins a new life, unless --adopt is given: without etcd nobody can tell
which of its checkpoints are good."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.cli.errors import CliError
from controlplane.wire.records import plain

if TYPE_CHECKING:
    from controlplane.cli.local.layout import LocalPaths
    from controlplane.core.records.model import JobSpec


@dataclass(frozen=True, slots=True)
class Beginning:
    """What to do with checkpoints that exist already.

    `fresh`: begin a new life beside them. `adopt`: continue from them although etcd does not know them.
    Neither: continue if etcd knows them."""

    fresh: bool = False
    adopt: bool = False


def current_life(layout: LocalPaths, spec: JobSpec, beginning: Beginning, knows_nothing: bool) -> JobSpec:
    """The spec under the name of its current life, or of the next one. Raises CliError.

    `knows_nothing`: no other etcd knows the job, so what our state folder's etcd has lost is lost."""
    life = int(_read(layout).get("life", 0)) + beginning.fresh
    lost = knows_nothing and not (layout.state / "etcd").exists()
    if lost and beginning.adopt:
        while _has_checkpoints(spec.storage, _named(spec.job, life + 1)):
            life += 1
        return dataclasses.replace(spec, job=_named(spec.job, life))
    while (beginning.fresh or lost) and _has_checkpoints(spec.storage, _named(spec.job, life)):
        life += 1
    return dataclasses.replace(spec, job=_named(spec.job, life))


def passed_over(layout: LocalPaths, asked: JobSpec, now: JobSpec, beginning: Beginning) -> str:
    """A message for people whose job begins anew beside unknown checkpoints; "" otherwise."""
    if beginning.fresh or now.job == _named(asked.job, int(_read(layout).get("life", 0))):
        return ""
    return (
        f"the storage has checkpoints of job {asked.job} that this machine does not know (its state "
        f"folder is new or lost): job {now.job} starts without them; give --adopt to continue from them"
    )


def remember(layout: LocalPaths, spec: JobSpec) -> None:
    """Record the life and the settings that run now."""
    path = layout.state / "job.json"
    partial = path.with_suffix(".part")
    life = spec.job.rpartition("-life")[2] if spec.job != layout.job else 0
    partial.write_text(json.dumps({"life": int(life), "spec": _settings(spec)}, indent=2))
    partial.replace(path)


def _settings(spec: JobSpec) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(json.dumps(plain(spec)))
    return settings


def _named(job: str, life: int) -> str:
    return f"{job[:52]}-life{life}" if life else job


def _read(layout: LocalPaths) -> dict[str, Any]:
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
    from holdfast.checkpoint.format import names
    from holdfast.checkpoint.storage.store import Store

    with contextlib.closing(Store.open(storage)) as store:
        return bool(store.list(names.manifests(job)))
