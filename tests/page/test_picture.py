"""What of the picture belongs to whom."""

from __future__ import annotations

import json

import pytest

from controlplane.daemon.page.picture import TABLES, Picture, patched


@pytest.mark.parametrize(("jobs", "hidden"), [((), 0), (("j",), 0), (("other",), 1)])
def test_why_another_job_is_not_well_is_on_the_page_of_its_own_only(
    jobs: tuple[str, ...], hidden: int
) -> None:
    made = Picture("e", TABLES)
    reasons, of = ["j: waits", "n1 is lost"], ["j", ""]
    actions = ["Wait.", "Look at n1."]
    row = {"health": "degraded", "reasons": reasons, "reasons_of": of, "actions": actions}
    before = made.moment
    made.put("cluster", "", row)
    assert made.close_patch()
    shown = row | {"reasons": reasons[hidden:], "reasons_of": of[hidden:], "actions": actions[hidden:]}
    assert json.loads(made.state(jobs))["tables"]["cluster"] == {"": shown}
    patches = made.since(before)
    assert patches is not None
    assert [json.loads(patched(each, jobs))["cluster"] for each in patches] == [{"": shown}]
