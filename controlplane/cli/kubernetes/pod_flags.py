"""Define the flags of `holdfast kubernetes render` that say where pods run and what they may use."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.cli.errors import UsageError
from controlplane.cli.flags.parser import whole
from controlplane.cli.kubernetes.pod import COPY_DIR, RUN_DIR, SHM_DIR

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.cli.flags.parser import Parser

_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|[kMGTPE]|[KMGTPE]i)?")
_CAPABILITY = re.compile(r"[A-Z][A-Z_]*")
_LABEL = re.compile(r"([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SECONDS_MAX = _USER_MAX = 2**31 - 1
_VOLUME = re.compile(r"(?P<name>[^:]+):(?P<path>/[^:]*[^:/])(?P<only>:ro)?")
_SOURCES: dict[str, Callable[[str], dict[str, Any]]] = {
    "claim": lambda name: {"persistentVolumeClaim": {"claimName": name}},
    "secret": lambda name: {"secret": {"secretName": name}},
    "config-map": lambda name: {"configMap": {"name": name}},
    "host": lambda name: {"hostPath": {"path": name}},
    "empty": lambda _: {"emptyDir": {}},
}
_TAKEN = (COPY_DIR, RUN_DIR, SHM_DIR, "/dev/shm", "/tmp")
"""Where a training container has something already."""


def add_pod_flags(parser: Parser) -> None:
    """Add them."""
    text: dict[str, Any] = {"default": "", "metavar": "NAME"}
    many: dict[str, Any] = {"action": "append", "default": []}
    pods = parser.add_argument_group("the pods")
    pods.add_argument("--cpu", type=_quantity, default=None, metavar="CORES", help="cores of a node's ranks")
    pods.add_argument(
        "--memory", type=_quantity, default=None, metavar="SIZE", help="memory of them, as 64Gi"
    )
    pods.add_argument(
        "--agent-cpu",
        type=_quantity,
        default=None,
        metavar="CORES",
        help="cores of a node's agent (default: 1)",
    )
    pods.add_argument(
        "--agent-memory-gi", type=whole(1, "an agent needs some"), default=2, metavar="GIB",
        help="memory of the agent besides the snapshots",
    )  # fmt: skip
    pods.add_argument(
        "--volume", **many, type=volume, metavar="KIND:NAME:PATH[:ro]",
        help=f"mount a volume at PATH in the training container; KIND: {', '.join(_SOURCES)}; "
        "NAME: of that, for host its folder, for empty any; repeatable",
    )  # fmt: skip
    pods.add_argument(
        "--toleration", **many, type=toleration, metavar="KEY[=VALUE][:EFFECT]",
        help="taint of hosts that the pods tolerate; repeatable",
    )  # fmt: skip
    pods.add_argument("--scheduler", **text, help="scheduler of the pods (default: the cluster's)")
    pods.add_argument("--host-network", action="store_true", help="pods use the network of their host")
    pods.add_argument(
        "--capability", **many, type=_capability, metavar="NAME", help="as IPC_LOCK; repeatable"
    )
    pods.add_argument(
        "--user", type=whole(1, "a user that is not root", _USER_MAX), default=65532, metavar="UID",
        help="user and group of the pods' processes",
    )  # fmt: skip
    pods.add_argument("--queue", type=_label, **text, help="local queue of Kueue, which starts the nodes")
    pods.add_argument(
        "--ttl-s", type=whole(0, "a time", _SECONDS_MAX), default=0, metavar="SECONDS",
        help="ended Jobs are removed after so long; 0: they stay",
    )  # fmt: skip
    for what in ("label", "annotation"):
        pods.add_argument(
            f"--{what}", **many, type=_pair, metavar="KEY=VALUE", help=f"{what} of Jobs and pods; repeatable"
        )


def pod_values(values: argparse.Namespace) -> dict[str, Any]:
    """What they say, as values of the chart."""
    limits = {"nvidia.com/gpu": values.gpus, "memory": values.memory}
    requests = {"cpu": values.cpu, "memory": values.memory}
    parts = {"limits": limits, "requests": requests}
    given = {part: {name: each for name, each in found.items() if each} for part, found in parts.items()}
    labels, annotations = dict(values.label), dict(values.annotation)
    return {
        "resources": {part: found for part, found in given.items() if found},
        "tolerations": values.toleration,
        "schedulerName": values.scheduler,
        "hostNetwork": values.host_network,
        "capabilities": values.capability,
        "runAsUser": values.user,
        "queue": values.queue,
        "ttlSecondsAfterFinished": values.ttl_s,
        "labels": labels,
        "podLabels": labels,
        "annotations": annotations,
        "podAnnotations": annotations,
        **_volumes(values.volume),
    }


def agent_values(values: argparse.Namespace) -> dict[str, Any]:
    """What they say of the agent, as values of the chart below `agent`."""
    return {"memoryGi": values.agent_memory_gi} | ({"cpu": values.agent_cpu} if values.agent_cpu else {})


@dataclass(frozen=True, slots=True)
class MountedVolume:
    """A volume of the pod, and where the training container finds it."""

    source: dict[str, Any]
    path: str
    read_only: bool


def volume(text: str) -> MountedVolume:
    """Parse `KIND:NAME:PATH[:ro]`. Raises ArgumentTypeError."""
    kind, _, rest = text.partition(":")
    match = _VOLUME.fullmatch(rest)
    if kind not in _SOURCES or match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no volume: give KIND:NAME:PATH[:ro], PATH from /, KIND one of {', '.join(_SOURCES)}"
        )
    if kind == "host" and not match["name"].startswith("/"):
        raise argparse.ArgumentTypeError(f"{text!r}: a host's folder begins with /")
    if match["path"] in _TAKEN:
        raise argparse.ArgumentTypeError(f"{text!r}: Holdfast mounts something at {match['path']} itself")
    return MountedVolume(_SOURCES[kind](match["name"]), match["path"], match["only"] is not None)


def _volumes(found: list[MountedVolume]) -> dict[str, Any]:
    """Raises UsageError when two are to be at one place."""
    paths = [each.path for each in found]
    twice = next((path for path in paths if paths.count(path) > 1), "")
    if twice:
        raise UsageError(f"--volume: two volumes are to be at {twice}: give each a PATH of its own")
    names = [f"volume-{index}" for index in range(len(found))]
    mounts: list[dict[str, Any]] = [
        {"name": name, "mountPath": each.path} | ({"readOnly": True} if each.read_only else {})
        for name, each in zip(names, found, strict=True)
    ]
    volumes = [{"name": name} | each.source for name, each in zip(names, found, strict=True)]
    return {"volumes": volumes, "volumeMounts": mounts}


def toleration(text: str) -> dict[str, str]:
    """Parse `KEY[=VALUE][:EFFECT]`, as `kubectl taint` has taints. Raises ArgumentTypeError."""
    whole_key, colon, effect = text.partition(":")
    key, equals, value = whole_key.partition("=")
    if not key or (colon and effect not in _EFFECTS):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no toleration: give KEY[=VALUE][:EFFECT], with {', '.join(_EFFECTS)}"
        )
    found = {"key": key, "operator": "Equal" if equals else "Exists"}
    return found | ({"value": value} if equals else {}) | ({"effect": effect} if colon else {})


def _quantity(text: str) -> str:
    if not _QUANTITY.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no quantity of Kubernetes: give as 8, 500m or 64Gi")
    return text


def _capability(text: str) -> str:
    if not _CAPABILITY.fullmatch(text) or text.startswith("CAP_"):
        raise argparse.ArgumentTypeError(f"{text!r} is no capability: give it without CAP_, as IPC_LOCK")
    return text


def _label(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be a label: letters, digits, '-', '_' and '.'")
    return text


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value
