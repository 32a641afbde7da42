"""What people add to the daemons' pods: variables, volumes, and where they run."""

from __future__ import annotations

import pytest

from tests.helm.cases import GOOD
from tests.helm.chart import Object, one, rendered


def daemons(case: str) -> dict[str, Object]:
    """The pod templates of coordinator and etcd, by the container's name."""
    objects = rendered(*GOOD[case])
    names = {"coordinator": "r-holdfast-coordinator", "etcd": "r-holdfast-etcd"}
    return {each: one(objects, "StatefulSet", name)["spec"]["template"] for each, name in names.items()}


@pytest.mark.parametrize("daemon", ["coordinator", "etcd"])
def test_it_is_in_the_pod(daemon: str) -> None:
    template = daemons("more of everything for the daemons")[daemon]
    pod = template["spec"]
    (container,) = pod["containers"]
    assert {"name": "SSL_CERT_DIR", "value": "/more"} in container["env"]
    assert {"name": "more", "mountPath": "/more", "readOnly": True} in container["volumeMounts"]
    assert {"name": "more", "configMap": {"name": "authorities"}} in pod["volumes"]
    assert pod["nodeSelector"] == {"pool": "a"}
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert pod["affinity"] == {"nodeAffinity": {}}
    assert template["metadata"]["labels"]["team"] == "x"
    assert template["metadata"]["annotations"]["a"] == "b"
    names = [each["name"] for each in (*pod["volumes"], *container["env"])]
    assert len(names) == len(set(names))


def test_etcd_has_volumes_without_a_certificate_too() -> None:
    pod = daemons("etcd with a volume and no certificate")["etcd"]["spec"]
    assert [each["name"] for each in pod["volumes"]] == ["more"]
