"""`holdfast kubernetes render`: the manifests of a training job for one's own script. No cluster is asked."""

from __future__ import annotations

import argparse
import copy
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.errors import OK, CliError, UsageError, nearest
from controlplane.cli.job_flags import clean_name
from controlplane.cli.kube_job import DEFAULTS, objects
from controlplane.cli.parser import Parser, one_of, whole
from controlplane.cli.yaml_text import document, documents

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE = "holdfast kubernetes render [flags] -- python train.py [its arguments]"
_JOB = re.compile(r"[a-z0-9]([-a-z0-9]{0,36}[a-z0-9])?")
_OLDEST_MINOR, _SUCCESS_POLICY_MINOR = 29, 31
_COORDINATORS = [f"holdfast-coordinator-{index}.holdfast-candidates.holdfast.svc:7070" for index in range(3)]


def kubernetes(argv: Sequence[str]) -> int:
    """Print what `kubectl apply -f -` takes, or the chart's values for the same job."""
    parser = _parser()
    if argv[:1] in (["-h"], ["--help"]):
        parser.read(argv)
    if argv[:1] != ["render"]:
        word = argv[0] if argv else ""
        raise UsageError(f"say what to do: {USAGE}{nearest(word, ['render'])}")
    values, command = parser.read_before_script(argv[1:])
    if not command:
        raise UsageError(f"no command given: {USAGE}")
    job = values.name or _name_of(command)
    if not _JOB.fullmatch(job):
        raise UsageError(f"--name {job!r} will not do: small letters, digits and '-', 38 at most")
    whole_values = _values(values, command)
    manifests = objects(job, whole_values, _context(values))
    own = {name: each for name, each in whole_values.items() if each != DEFAULTS[name]}
    print(document({"jobs": {job: own}}) if values.output == "values" else documents(manifests), end="")
    return OK


def _parser() -> Parser:
    parser = Parser("kubernetes render", "Print the manifests of a training job on Kubernetes.", usage=USAGE)
    text: dict[str, Any] = {"default": "", "metavar": "TEXT"}
    parser.add_argument("--image", **text, help="your image, with Python 3.11 and torch; nothing of ours")
    parser.add_argument("--name", **text, help="the job's name (default: the script's)")
    parser.add_argument("--workdir", **text, help="folder of the script in the image")
    _add_size(parser)
    parser.add_argument("--storage", **text, help="where checkpoints go: an fsspec URL")
    parser.add_argument("--mirror", **text, help="a second storage that gets them too")
    parser.add_argument("--storage-secret", **text, help="secret whose keys become variables")
    parser.add_argument("--claim", **text, help="claim to mount at /checkpoints, for file:///checkpoints")
    parser.add_argument("--service-account", **text, help="service account that the storage trusts")
    parser.add_argument(
        "--flag", action="append", default=[], metavar="FLAG", help="more of `submit`; repeatable"
    )
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="variable; repeatable"
    )
    kinds = ("Job", "StatefulSet", "JobSet")
    parser.add_argument(
        "--kind", type=one_of(*kinds), default="Job", metavar="|".join(kinds), help="what to make"
    )
    parser.add_argument(
        "--kubernetes", type=_minor, default=31, metavar="1.N", help="oldest Kubernetes that it shall suit"
    )
    parser.add_argument("--cluster", default="default", metavar="NAME", help="name of the cluster")
    parser.add_argument(
        "--coordinator",
        default=",".join(_COORDINATORS),
        metavar="HOST:PORT",
        help="coordinators, comma separated",
    )
    parser.add_argument(
        "--holdfast-image", **text, help="image of agent and launcher (default: this version's)"
    )
    parser.add_argument(
        "-o", "--output", type=one_of("yaml", "values"), default="yaml", metavar="yaml|values",
        help="manifests, or the chart's values for the same job",
    )  # fmt: skip
    return parser


def _minor(text: str) -> int:
    major, _, minor = text.removeprefix("v").partition(".")
    number = minor.partition(".")[0]
    if major != "1" or not number.isdecimal() or int(number) < _OLDEST_MINOR:
        raise argparse.ArgumentTypeError(f"{text!r}: native sidecars need 1.{_OLDEST_MINOR} or newer")
    return int(number)


def _add_size(parser: Parser) -> None:
    count, node = whole(0, "a count"), whole(1, "a job needs one")
    parser.add_argument("--nodes", type=node, default=1, metavar="N", help="nodes that train")
    parser.add_argument(
        "--nodes-min", type=count, default=0, metavar="N", help="go on with so few; 0: no fewer"
    )
    parser.add_argument("--spare-nodes", type=count, default=0, metavar="N", help="nodes that wait, warm")
    parser.add_argument("--nproc-per-node", type=node, default=1, metavar="N", help="ranks per node")
    parser.add_argument("--spares", type=count, default=0, metavar="N", help="warm processes per node")
    parser.add_argument("--gpus", type=count, default=0, metavar="N", help="nvidia.com/gpu per node")
    parser.add_argument(
        "--snapshot-gi", type=node, default=8, metavar="GIB", help="memory for snapshots per node"
    )
    parser.add_argument("--shm-gi", type=node, default=8, metavar="GIB", help="/dev/shm of the trainer")


def _values(values: argparse.Namespace, command: list[str]) -> dict[str, Any]:
    found = copy.deepcopy(DEFAULTS)
    found |= {
        "kind": values.kind,
        "image": values.image,
        "command": command,
        "workingDir": values.workdir,
        "nodes": values.nodes,
        "nodesMin": values.nodes_min,
        "spareNodes": values.spare_nodes,
        "ranksPerNode": values.nproc_per_node,
        "sparesPerNode": values.spares,
        "flags": values.flag,
        "coordinators": values.coordinator.split(","),
        "snapshotGi": values.snapshot_gi,
        "shmGi": values.shm_gi,
        "env": [_variable(text) for text in values.env],
        "serviceAccountName": values.service_account,
    }
    if values.gpus:
        found["resources"] = {"limits": {"nvidia.com/gpu": values.gpus}}
    found["storage"] |= {"url": values.storage, "mirror": values.mirror, "secretName": values.storage_secret}
    found["storage"]["pvc"]["claimName"] = values.claim
    return found


def _variable(text: str) -> dict[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--env {text!r} is no NAME=VALUE")
    return {"name": name, "value": value}


def _context(values: argparse.Namespace) -> dict[str, Any]:
    from controlplane import __version__

    image = values.holdfast_image or f"ghcr.io/holdfast/holdfast:{__version__}"
    if image.endswith(":latest"):
        raise CliError(
            f"--holdfast-image {image} can become another one at any time: give a digest or a version"
        )
    return {
        "cluster": values.cluster,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "coordinators": values.coordinator.split(","),
        "successPolicy": values.kubernetes >= _SUCCESS_POLICY_MINOR,
    }


def _name_of(command: list[str]) -> str:
    script = next((word for word in command[1:] if not word.startswith("-")), command[0])
    name = clean_name(Path(script).name.removesuffix(".py")).lower().replace("_", "-").replace(".", "-")
    return name[:38].strip("-")


COMMANDS = {"kubernetes": kubernetes}
