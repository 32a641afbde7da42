"""What a spec of the benchmark says is drawn; what it cannot say is refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.diagnosis.live.draw import draw
from benchmarks.diagnosis.live.run import drawn_of, report
from benchmarks.diagnosis.live.spec_file import DEFAULT, spec, spec_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["default.yaml", "large.yaml"])
def test_the_specs_that_are_shipped_are_read(name: str) -> None:
    assert spec_of(DEFAULT.with_name(name)).jobs > 0


def test_every_key_is_honoured() -> None:
    drawn = spec({
        "jobs": 60, "healthy_share": 0.5, "nodes": [500, 1000], "ranks_per_node": [4], "pp": [2], "tp": [4],
        "onset": [0.6, 0.7], "late_share": 1.0, "factor": [1.2, 1.3], "noises": ["drift"],
        "sigma": [0.01, 0.02], "noise_scale": 2.0, "lasting": [0.01, 0.01], "windows": [80, 80],
        "steps_per_window": [5, 5], "kinds": ["slow_rank", "slow_node"],
    })  # fmt: skip
    healthy = 0
    for seed in range(100, 160):
        shape, truth = draw(drawn, seed)
        assert 500 <= shape.nodes <= 1000 and shape.per_node == 4 and shape.tp == 4
        assert shape.pp == 2 and shape.noise == "drift" and 0.02 <= shape.sigma <= 0.04
        assert (shape.windows, shape.steps, shape.lasting) == (80, 5, 0.01)
        if truth.kind == "none":
            healthy += 1
            continue
        assert truth.kind in ("slow_rank", "slow_node")
        assert 1.2 <= truth.factor <= 1.3 and 48 <= truth.onset <= 56
    assert 20 <= healthy <= 40
    said = drawn_of(drawn, 100)
    assert (said["healthy"], said["late"], said["noises"]) == (healthy, 60 - healthy, {"drift": 60})
    assert said["layouts"] == {"pp 2, tp 4": 60}


def test_what_is_left_out_is_as_in_the_default() -> None:
    assert spec({}) == spec_of(DEFAULT)
    assert spec({"jobs": 3}).jobs == 3 and spec({"jobs": 3}).pp == spec_of(DEFAULT).pp


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({"onsets": [0.1, 0.2]}, "unknown key 'onsets': did you mean onset?"),
        ({"onset": [0.5, 0.2]}, "onset is .*the lower one first"),
        ({"onset": 0.5}, "onset is 0.5: two numbers"),
        ({"nodes": [0, 5]}, "nodes is"),
        ({"kinds": ["slow"]}, "kinds is .*slow_rank"),
        ({"noises": []}, "noises is"),
        ({"healthy_share": 1.5}, "healthy_share is 1.5"),
        ({"pp": [0]}, "pp is"),
        ({"jobs": 0}, "jobs is 0"),
        ({"noise_scale": "much"}, "noise_scale is 'much'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(found: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        spec(found)


def test_a_file_that_is_no_spec_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("- 1\n")
    with pytest.raises(ValueError, match=r"mine\.yaml: a spec is a mapping"):
        spec_of(path)


def test_a_layout_that_fits_no_job_is_refused() -> None:
    with pytest.raises(ValueError, match="no job of 3 to 3 nodes with 1 ranks each has pp 2 and tp 1"):
        draw(spec({"pp": [2], "tp": [1], "nodes": [3, 3], "ranks_per_node": [1]}), 1)


def test_a_fault_that_no_such_job_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="can have the fault overfull_stage"):
        draw(spec({"pp": [2], "kinds": ["overfull_stage"], "healthy_share": 0.0}), 1)


def test_a_report_says_for_each_kind_what_was_found_how_soon_and_at_what_cost() -> None:
    drawn = spec({"jobs": 3, "nodes": [2, 3], "ranks_per_node": [4], "pp": [1], "tp": [1],
                  "windows": [50, 50], "healthy_share": 0.0, "kinds": ["slow_rank"],
                  "factor": [1.5, 2.0]})  # fmt: skip
    found = report(drawn, 10, variants=False)["plain"]
    kind = found["kinds"]["slow_rank"]
    assert (kind["precision"], kind["recall"], kind["f1"], kind["jobs"]) == (1.0, 1.0, 1.0, 3)
    assert kind["recall_by_factor"] == {"1.5-2": {"named": 3, "of": 3}}
    assert kind["seconds_to_find_median"] > 10.0 and kind["cpu_us_per_rank_and_window"] > 0.0
    assert found["not_found_where_they_are"] == [] and found["wrong_findings"] == []
