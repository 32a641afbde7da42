"""Planning layouts: published figures, formulas, limits, and brute force where that is possible."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controlplane.cli.main import main
from controlplane.cli.plan import read_cluster, read_model
from controlplane.planner import cost, memory
from controlplane.planner.places import PlannedNode, place, shared_domains
from controlplane.planner.ranking import check, judge, layouts, plan, shrink
from controlplane.planner.shapes import ClusterShape, Layout, LayoutError, LinkShape, ModelShape
from controlplane.planner.stages import balance

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).parents[2] / "examples"
GPT = read_model(EXAMPLES / "models/gpt-175b.toml")
A100 = read_cluster(EXAMPLES / "clusters/1024-a100.toml")
SMALL = ModelShape("small", 8, 512, 8, 128, 1000, 64)
NODES = replace(A100, name="nodes", nodes=4)


def test_the_published_layout_of_175_billion_is_among_the_best_three() -> None:
    best = plan(GPT, A100, most=3)
    found = [each for each in best if (each.layout.tp, each.layout.pp, each.layout.dp) == (8, 16, 8)]
    assert len(found) == 1
    assert 0.46 <= found[0].cost.mfu <= 0.48
    assert 0.85 <= found[0].memory_ratio <= 0.90
    assert 0.15 <= found[0].communication_ratio <= 0.20
    assert GPT.parameters == pytest.approx(175e9, rel=0.01)


def test_a_step_is_what_it_is_made_of() -> None:
    for each in plan(GPT, A100):
        spent = each.cost
        assert spent.step_s == pytest.approx(spent.compute_s + spent.communication_s + spent.bubble_s)
        assert sum(each.layout.stages) == GPT.layers and each.layout.devices == A100.devices
        assert each.memory_ratio <= 1


def test_flops_and_activations_are_those_of_the_papers() -> None:
    s, h, a = GPT.sequence, GPT.hidden, GPT.heads
    assert cost.layer_flops(GPT) == pytest.approx(72 * s * h**2 * (1 + s / (6 * h)))
    whole = Layout(1, 1, 1)
    assert memory.layer_activations(GPT, whole) == pytest.approx(s * h * (34 + 5 * a * s / h))
    split = replace(GPT, sequence_parallel=False)
    assert memory.layer_activations(split, Layout(8, 1, 1)) == pytest.approx(
        s * h * (10 + 24 / 8 + 5 * a * s / (8 * h))
    )
    assert memory.layer_activations(replace(GPT, recompute="full"), Layout(8, 1, 1)) == 2 * s * h / 8


def compositions(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Every way to cut so many layers into so many parts."""
    for cuts in itertools.combinations(range(1, layers), stages - 1):
        ends = (0, *cuts, layers)
        yield tuple(after - before for before, after in itertools.pairwise(ends))


def slowest(sizes: tuple[int, ...], head: float) -> float:
    return max((*sizes[:-1], sizes[-1] + head))


@pytest.mark.parametrize("layers", [1, 2, 5, 9])
@pytest.mark.parametrize("head", [0.0, 0.35, 1.0, 3.7])
def test_stages_are_as_balanced_as_can_be(layers: int, head: float) -> None:
    for stages in range(1, layers + 1):
        every = list(compositions(layers, stages))
        found = balance(layers, stages, head)
        assert found in every
        assert slowest(found, head) == min(slowest(sizes, head) for sizes in every)


def test_the_last_stage_gets_fewer_layers_when_the_head_weighs_much() -> None:
    assert balance(8, 4, 2.0) == (2, 3, 2, 1) or slowest(balance(8, 4, 2.0), 2.0) == 3
    with pytest.raises(ValueError, match="2 layers cannot fill 3 stages"):
        balance(2, 3, 0.0)


def test_more_memory_is_needed_where_more_is_kept() -> None:
    layout = replace(plan(GPT, A100, most=1)[0].layout, tp=8, pp=16, dp=8, cp=1, stages=())
    sizes = [
        judge(replace(GPT, **change), A100, layout).memory_ratio
        for change in (
            {}, {"recompute": "selective"}, {"recompute": "full"},
            {"recompute": "full", "optimizer_sharded": True},
        )
    ]  # fmt: skip
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 4


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (Layout(3, 1, 1), "heads 8 is not divisible by tp 3"),
        (Layout(1, 1, 1, cp=3), "sequence 128 is not divisible by cp 3"),
        (Layout(1, 9, 1), "8 layers cannot fill pp 9"),
        (Layout(1, 1, 128), "global batch 64 is less than dp 128"),
        (Layout(8, 8, 8), "are 512 devices, cluster nodes has 32"),
        (Layout(1, 2, 1, stages=(3, 3)), "are not 8 layers in pp 2 parts"),
    ],
)
def test_an_impossible_layout_names_the_divisor_that_fails(layout: Layout, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        check(SMALL, NODES, layout)


def test_what_fits_nowhere_says_what_would_have_to_give() -> None:
    tiny = replace(NODES, memory_bytes=1e9)
    with pytest.raises(
        LayoutError, match=r"the nearest, tp .* needs \d+% of a device's memory.*recompute more"
    ):
        plan(GPT, tiny)
    with pytest.raises(LayoutError, match="no sizes divide it: heads 8 by tp"):
        plan(replace(SMALL, global_batch=7), replace(NODES, nodes=1, devices_per_node=11))


def test_every_layout_uses_the_whole_cluster_and_stays_inside_its_divisors() -> None:
    found = list(layouts(SMALL, NODES))
    assert found
    for layout in found:
        check(SMALL, NODES, layout)
        assert layout.devices == NODES.devices
        assert SMALL.global_batch % (layout.dp * layout.micro_batch) == 0


def test_a_shrunken_layout_gives_up_replicas_and_keeps_groups_whole() -> None:
    before = next(c.layout for c in plan(GPT, A100) if c.layout.pp == 16)
    after = shrink(GPT, A100, before, A100.devices - 8).layout
    assert (after.tp, after.pp, after.cp, after.stages) == (before.tp, before.pp, before.cp, before.stages)
    assert after.dp == before.dp - 1
    grown = shrink(GPT, A100, after, A100.devices).layout
    assert grown == before


def test_less_than_one_replica_is_planned_anew() -> None:
    layout = plan(SMALL, NODES, most=1)[0].layout
    group = replace(layout, tp=8, pp=4, dp=1, cp=1, stages=())
    small = shrink(SMALL, NODES, group, 8).layout
    assert small.devices == 8
    with pytest.raises(LayoutError, match="does not fit"):
        shrink(GPT, A100, Layout(8, 16, 8), 8)


def sites(count: int, domains: int, devices: int = 8) -> list[PlannedNode]:
    return [PlannedNode(f"n{i}", devices, f"rack{i * domains // count}") for i in range(count)]


def test_tensor_groups_stay_inside_a_node_and_copies_apart() -> None:
    layout, spots = Layout(4, 4, 8), sites(16, 8)
    places = place(layout, spots)
    assert [p.rank for p in places] == list(range(128))
    assert len({(p.node, p.device) for p in places}) == 128
    groups: dict[tuple[int, int, int], set[str]] = {}
    for p in places:
        groups.setdefault((p.pp, p.dp, p.cp), set()).add(p.node)
    assert all(len(nodes) == 1 for nodes in groups.values())
    assert shared_domains(places, spots) == 0
    assert shared_domains(place(layout, sites(16, 4)), sites(16, 4)) > 0


def test_unequal_nodes_are_filled_and_too_few_are_refused() -> None:
    spots = [PlannedNode("a", 8, "a"), PlannedNode("b", 5, "b"), PlannedNode("c", 3, "c")]
    assert {p.node for p in place(Layout(4, 1, 3), spots)} == {"a", "b"}
    with pytest.raises(LayoutError, match=r"4 tensor groups of 4 need .* 3 nodes with 16 devices hold 3"):
        place(Layout(4, 1, 4), spots)


def test_rings_and_links_count_latency_and_bytes() -> None:
    link = LinkShape(100.0, 1.0, 0.5)
    assert link.all_reduce_s(1000.0, 1) == 0.0
    assert link.all_reduce_s(1000.0, 4) == pytest.approx(6 * (1.0 + 1000 / 4 / 50))
    assert link.move_s(100.0) == pytest.approx(3.0)


def test_the_command_prints_the_ranking(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--model", str(EXAMPLES / "models/gpt-175b.toml")]
    flags += ["--cluster", str(EXAMPLES / "clusters/1024-a100.toml")]
    assert main(["plan", *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["candidates"]
    assert {"tp", "pp", "dp", "cp", "mfu", "memory_ratio", "communication_ratio", "reasons"} <= set(found[0])
    assert [each["step_s"] for each in found] == sorted(each["step_s"] for each in found)
    assert main(["plan", *flags, "--most", "1"]) == 0
    assert "billion weights on 1024 devices" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("heads = 96", "is missing"),
        ("layer = 3", "layer is unknown; did you mean layers"),
        ('layers = "many"', "give a number"),
        ("layers = true", "give a number"),
        ('recompute = "some"', "known are none, selective, full"),
        ("layers = -1", "give a number above 0"),
        ("= 3", "is not valid TOML"),
    ],
)
def test_bad_files_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, message: str
) -> None:
    text = (EXAMPLES / "models/gpt-175b.toml").read_text()
    name = change.partition(" =")[0]
    kept = [line for line in text.splitlines() if not line.startswith(f"{name} =")]
    path = tmp_path / "model.toml"
    path.write_text("\n".join([*kept, "" if message == "is missing" else change]))
    flags = ["--model", str(path), "--cluster", str(EXAMPLES / "clusters/1024-a100.toml")]
    assert main(["plan", *flags]) == 2
    assert message in capsys.readouterr().err
    assert main(["plan", "--model", str(tmp_path / "none.toml"), *flags[2:]]) == 2


def test_the_same_code_plans_what_is_left_of_a_huge_cluster() -> None:
    huge = ClusterShape("huge", 2048, 8, 80e9, 312e12, A100.inside, A100.between)
    big = replace(GPT, global_batch=16384)
    layout = next(c.layout for c in plan(big, huge) if c.layout.cp == 1)
    left = shrink(big, huge, layout, huge.devices - 64)
    assert left.layout.dp < layout.dp and left.layout.devices <= huge.devices - 64
