"""What the chart says after an install, and that its etcd is not killed for what a restart does not mend."""

from __future__ import annotations

from tests.helm.cases import GOOD, PAGE
from tests.helm.chart import ETCD, JOB, JOBSET, one, rendered, templates


def test_the_notes_name_what_is_there_to_wait_for() -> None:
    values = {**ETCD, "jobs": {"a": JOB, "b": {**JOB, "kind": "JobSet"}}}
    notes = templates(values, (JOBSET,))["holdfast/templates/NOTES.txt"]
    assert "job/a-submit" in notes and "jobset/b" in notes and "b-submit" not in notes


def test_the_notes_say_how_the_page_is_reached_and_who_is_shut_out() -> None:
    page = {**ETCD, "page": {**PAGE, "public": True}}
    notes = templates(page)["holdfast/templates/NOTES.txt"]
    assert "svc/r-holdfast-page 8443" in notes and "networkPolicy.pageNamespaces is empty" in notes
    named = {**page, "networkPolicy": {"pageNamespaces": {"kubernetes.io/metadata.name": "nginx"}}}
    assert "pageNamespaces" not in templates(named)["holdfast/templates/NOTES.txt"]


def test_an_etcd_that_is_full_or_alone_is_not_killed_for_it() -> None:
    """As kubeadm asks: a restart makes neither room nor a quorum."""
    objects = rendered(GOOD["bundled etcd, encrypted"][0], GOOD["bundled etcd, encrypted"][1])
    (container,) = one(objects, "StatefulSet", "r-holdfast-etcd")["spec"]["template"]["spec"]["containers"]
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] == "/health?exclude=NOSPACE&serializable=true"
    assert container["readinessProbe"]["httpGet"]["path"] == "/health"
