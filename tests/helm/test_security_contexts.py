"""Security contexts that people give replace ours key by key, and no key that would part agent and ranks."""

from __future__ import annotations

from typing import Any

import helm_python
import pytest
import yaml

from controlplane.cli.main import main
from tests.helm.chart import ETCD, JOB, Object, one, rendered

OWN: dict[str, Any] = {
    "podSecurityContext": {"runAsUser": 1000810000, "fsGroup": 5, "runAsNonRoot": False},
    "securityContext": {"readOnlyRootFilesystem": False, "privileged": False},
}


def template(objects: list[Object], kind: str, name: str) -> Object:
    found: Object = one(objects, kind, name)["spec"]["template"]["spec"]
    return found


def test_the_daemons_have_what_is_given_and_keep_the_rest() -> None:
    objects = rendered({"etcd": {"bundled": {"enabled": True}}, "tls": ETCD["tls"], **OWN})
    for daemon in ("coordinator", "etcd"):
        pod = template(objects, "StatefulSet", f"r-holdfast-{daemon}")
        context = pod["securityContext"]
        assert (context["runAsUser"], context["fsGroup"], context["runAsNonRoot"]) == (1000810000, 5, False)
        assert (context["runAsGroup"], context["seccompProfile"]) == (65532, {"type": "RuntimeDefault"})
        assert pod["containers"][0]["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": False,
        }


def test_a_job_has_its_own() -> None:
    given = {"runAsUser": 7, "podSecurityContext": {"fsGroup": 9}, "securityContext": {"privileged": False}}
    pod = template(rendered({**ETCD, **OWN, "jobs": {"j": {**JOB, **given}}}), "Job", "j-nodes")
    context = pod["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (7, 7, 9)
    assert pod["containers"][0]["securityContext"]["privileged"] is False
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert all("privileged" not in each["securityContext"] for each in pod["initContainers"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"podSecurityContext": {"runAsUser": 7}}, "set runAsUser beside the security contexts"),
        ({"securityContext": {"runAsUser": 7}}, "set runAsUser beside the security contexts"),
        ({"securityContext": {"capabilities": {"add": ["X"]}}}, "set capabilities beside securityContext"),
    ],
    ids=str,
)
def test_what_would_part_agent_and_ranks_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(helm_python.HelmError, match=said):
        rendered({**ETCD, "jobs": {"j": {**JOB, **given}}})


def test_the_command_takes_a_user_who_is_not_root(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["kubernetes", "render", "--image", "i:1", "--insecure", "--name", "x"]
    assert main([*words, "--user", "1000", "--", "python", "x.py"]) == 0
    pod = template(list(yaml.safe_load_all(capsys.readouterr().out)), "Job", "x-nodes")
    assert {pod["securityContext"][key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {1000}
    assert main([*words, "--user", "0", "--", "python", "x.py"]) == 2
    assert "a user that is not root" in capsys.readouterr().err
