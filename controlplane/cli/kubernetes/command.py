"""`holdfast kubernetes render`: print the manifests that run one's own script. No cluster is contacted."""

from __future__ import annotations

import argparse
import copy
import re
from pathlib import Path
from typing import Any

from controlplane.cli.errors import OK, CliError, UsageError
from controlplane.cli.flags.job import clean_name
from controlplane.cli.flags.parser import CommandEntry, CommandSpec, Parser, addresses, one_of, whole
from controlplane.cli.kubernetes.job import DEFAULTS, objects
from controlplane.cli.kubernetes.pod_flags import add_pod_flags, agent_values, pod_values
from controlplane.cli.kubernetes.tls import INSECURE
from controlplane.cli.kubernetes.yaml_text import document, documents

USAGE = "holdfast kubernetes render [flags] -- python train.py [its arguments]"
_JOB = re.compile(r"[a-z0-9]([-a-z0-9]{0,36}[a-z0-9])?")
_CERTIFICATE_HOURS = 24
_DENY_KEY = "denied"
_OLDEST_MINOR, _SUCCESS_POLICY_MINOR = 29, 31
_COORDINATORS = [f"holdfast-coordinator-{index}.holdfast-candidates.holdfast.svc:7070" for index in range(3)]


def kubernetes(_: argparse.Namespace) -> int:
    """Raise UsageError: the verb is missing."""
    raise UsageError(f"a verb is missing: {USAGE}")


def render(values: argparse.Namespace) -> int:
    """Print the manifests for `kubectl apply -f -`, or the chart's values for the same job."""
    command = values.command
    if not command:
        raise UsageError(f"no command given: {USAGE}")
    job = values.name or _name_of(command)
    if not _JOB.fullmatch(job):
        raise UsageError(f"--name {job!r} is not allowed: lower-case letters, digits and '-', 38 at most")
    whole_values = _values(values, command)
    context = _context(values, whole_values, job)
    manifests = objects(job, whole_values, context)
    own = {name: each for name, each in whole_values.items() if each != DEFAULTS[name]}
    chart = {"tls": _chart_tls(context["tls"]), "jobs": {job: own}}
    print(document(chart) if values.output == "values" else documents(manifests), end="")
    return OK


def _flags(parser: Parser) -> None:
    name: dict[str, Any] = {"default": "", "metavar": "NAME"}
    parser.add_argument(
        "--image", default="", metavar="IMAGE", help="your training image, with Python 3.11 and torch"
    )
    parser.add_argument("--name", **name, help="name of the job (default: the name of the script)")
    parser.add_argument("--workdir", default="", metavar="FOLDER", help="folder of the script in the image")
    _add_size(parser)
    _add_storage(parser, name)
    _add_tls(parser, name)
    add_pod_flags(parser)
    parser.add_argument("--service-account", **name, help="service account that the storage trusts")
    parser.add_argument(
        "--flag",
        action="append",
        default=[],
        metavar="FLAG",
        help="one more flag of `holdfast submit`; repeatable",
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="environment variable of the ranks; repeatable",
    )
    kinds = ("Job", "StatefulSet", "JobSet")
    parser.add_argument(
        "--kind",
        type=one_of(*kinds),
        default="Job",
        metavar="|".join(kinds),
        help="kind of object for the nodes",
    )
    parser.add_argument(
        "--kubernetes",
        type=_minor,
        default=31,
        metavar="1.N",
        help="oldest version of Kubernetes to support (default: 1.31)",
    )
    parser.add_argument("--cluster", default="default", metavar="NAME", help="name of the Holdfast cluster")
    parser.add_argument(
        "--coordinator",
        default=",".join(_COORDINATORS),
        metavar="HOST:PORT",
        help="addresses of the coordinators, comma separated",
    )
    parser.add_argument(
        "--holdfast-image",
        default="",
        metavar="IMAGE",
        help="image of agent and launcher (default: this version's)",
    )
    parser.add_argument(
        "-o", "--output", type=one_of("yaml", "values"), default="yaml", metavar="yaml|values",
        help="yaml: manifests; values: the values of the Helm chart for the same job",
    )  # fmt: skip
    parser.add_script("COMMAND", "the command of the training container, python first")


def _add_storage(parser: Parser, name: dict[str, Any]) -> None:
    url: dict[str, Any] = {"default": "", "metavar": "URL"}
    parser.add_argument("--storage", **url, help="storage of the checkpoints: an fsspec URL")
    parser.add_argument("--mirror", **url, help="a second storage for every checkpoint")
    parser.add_argument("--storage-secret", **name, help="secret whose keys become environment variables")
    parser.add_argument(
        "--claim", **name, help="volume claim to mount at /checkpoints, for file:///checkpoints"
    )


def _add_tls(parser: Parser, name: dict[str, Any]) -> None:
    parser.add_argument(
        "--tls-issuer",
        default="",
        metavar="[KIND/]NAME",
        help="cert-manager issuer of the job's certificates",
    )
    parser.add_argument(
        "--tls-agent-secret", **name, help="secret of the agents, with ca.crt, tls.crt, tls.key"
    )
    parser.add_argument("--tls-submit-secret", **name, help="the same for the pod that submits the job")
    parser.add_argument(
        "--tls-peer-name",
        default="agents.holdfast",
        metavar="NAME",
        help="DNS name in the certificates of the agents",
    )
    parser.add_argument(
        "--tls-csi", action="store_true", help="one certificate for each pod, by cert-manager's CSI driver"
    )
    parser.add_argument(
        "--tls-deny-list",
        **name,
        help=f"config map with the list of refused callers under {_DENY_KEY!r}",
    )
    parser.add_argument("--insecure", action="store_true", help="no TLS and no authentication: for trials")


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
        "--nodes-min",
        type=count,
        default=0,
        metavar="N",
        help="fewest nodes to train on after a loss; 0: no fewer than --nodes",
    )
    parser.add_argument(
        "--spare-nodes", type=count, default=0, metavar="N", help="nodes that wait for a failure"
    )
    parser.add_argument("--nproc-per-node", type=node, default=1, metavar="N", help="ranks per node")
    parser.add_argument("--spares", type=count, default=0, metavar="N", help="warm spare processes per node")
    parser.add_argument("--gpus", type=count, default=0, metavar="N", help="GPUs per node (nvidia.com/gpu)")
    parser.add_argument(
        "--snapshot-gi", type=node, default=8, metavar="GIB", help="memory for snapshots, per node"
    )
    parser.add_argument(
        "--shm-gi", type=node, default=8, metavar="GIB", help="size of /dev/shm in the training container"
    )


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
        "coordinators": addresses(values.coordinator),
        "snapshotGi": values.snapshot_gi,
        "shmGi": values.shm_gi,
        "env": [_variable(text) for text in values.env],
        "serviceAccountName": values.service_account,
        "tls": {"agentSecret": values.tls_agent_secret, "submitSecret": values.tls_submit_secret},
    }
    found |= pod_values(values)
    found["agent"] |= agent_values(values)
    found["storage"] |= {"url": values.storage, "mirror": values.mirror, "secretName": values.storage_secret}
    found["storage"]["pvc"]["claimName"] = values.claim
    return found


def _variable(text: str) -> dict[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--env {text!r} is not NAME=VALUE")
    return {"name": name, "value": value}


def _context(values: argparse.Namespace, job: dict[str, Any], name: str) -> dict[str, Any]:
    from holdfast.version import __version__

    image = values.holdfast_image or f"ghcr.io/holdfast/holdfast:{__version__}"
    if image.endswith(":latest"):
        raise CliError(f"--holdfast-image {image} can change at any time: give a digest or a version")
    return {
        "cluster": values.cluster,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "coordinators": job["coordinators"],
        "successPolicy": values.kubernetes >= _SUCCESS_POLICY_MINOR,
        "tls": _tls(values, job["tls"]),
        "instance": name,
        "managedBy": "holdfast",
    }


def _tls(values: argparse.Namespace, secrets: dict[str, str]) -> dict[str, Any]:
    """Where the job's certificates come from. Raises UsageError when no flag tells."""
    if values.insecure:
        if values.tls_issuer or any(secrets.values()) or values.tls_deny_list:
            raise UsageError("--insecure cannot be combined with certificates or a deny list: drop one")
        return INSECURE
    if not values.tls_issuer and not all(secrets.values()):
        raise UsageError(
            "no source of certificates is given: give --tls-issuer, or --tls-agent-secret and "
            "--tls-submit-secret, or ask for plaintext with --insecure"
        )
    kind, slash, name = values.tls_issuer.rpartition("/")
    return {
        "from": "certManager" if values.tls_issuer else "secrets",
        "peerName": values.tls_peer_name,
        "csiDriver": values.tls_csi,
        "hours": _CERTIFICATE_HOURS,
        "issuer": {"name": name, "kind": kind if slash else "Issuer", "group": "cert-manager.io"},
        "agentSecret": "",
        "submitSecret": "",
        "denyMap": values.tls_deny_list,
        "denyKey": _DENY_KEY,
    }


def _chart_tls(tls: dict[str, Any]) -> dict[str, Any]:
    """The same as values of the chart."""
    denied = {"denyList": {"configMap": tls["denyMap"]}} if tls["denyMap"] else {}
    if tls["from"] != "certManager":
        return {"from": tls["from"], **denied}
    made = {"issuerRef": tls["issuer"], "csiDriver": tls["csiDriver"]}
    return {"from": tls["from"], "peerName": tls["peerName"], "certManager": made, **denied}


def _name_of(command: list[str]) -> str:
    script = next((word for word in command[1:] if not word.startswith("-")), command[0])
    name = clean_name(Path(script).name.removesuffix(".py")).lower().replace("_", "-").replace(".", "-")
    return name[:38].strip("-")


COMMANDS = {
    "kubernetes": CommandSpec(
        "Print Kubernetes manifests. No cluster is contacted.",
        kubernetes,
        usage=USAGE,
        verbs={"render": CommandEntry("kubernetes.command", "print the manifests of a training job")},
    ),
    "render": CommandSpec(
        "Print the manifests of a training job for `kubectl apply -f -`. The Holdfast chart must be "
        "installed. The pods run your image as it is, with the agent as a sidecar. No cluster is contacted.",
        render,
        _flags,
        USAGE,
    ),
}
