"""What a token costs and what a device can do is known for sure, or unknown with the reason."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from holdfast.anatomy import compute, peaks
from holdfast.anatomy.compute import DeclaredCompute
from holdfast.ipc import rank_facts
from holdfast.ipc.rank_facts import NOTES

SHAPE = DeclaredCompute(layers=2, hidden=8, sequence=16)
ATTENTION = 12 * 2 * 8 * 16
H200 = "NVIDIA H200"


class Gpt(nn.Module):
    """An embedding of 32 x 8, a layer of 8 x 8 with bias, and an output of 32 x 8, tied or not."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.tokens = nn.Embedding(32, 8)
        self.layer = nn.Linear(8, 8)
        self.head = nn.Linear(8, 32, bias=False)
        if tied:
            self.head.weight = self.tokens.weight


def known(*modules: nn.Module, declared: DeclaredCompute = SHAPE) -> tuple[int, str]:
    found = compute.facts(modules, declared, H200, torch.bfloat16)
    return found.token_flops, NOTES[found.note]


def test_parameters_count_once_and_tables_that_are_looked_up_do_not() -> None:
    assert known(Gpt()) == (6 * (72 + 256) + ATTENTION, "counted")
    assert known(Gpt(tied=True)) == (6 * (72 + 256) + ATTENTION, "counted")
    model = Gpt()
    assert known(model, model.head) == known(model)


def test_what_is_not_trained_does_not_count_and_half_trained_is_unknown() -> None:
    teacher, model = Gpt().requires_grad_(False), Gpt()
    assert known(teacher, model) == known(model)
    assert known(teacher)[0] == 0 and "no tracked module" in known(teacher)[1]
    model.layer.requires_grad_(False)
    assert known(model)[0] == 0 and "frozen" in known(model)[1]


def test_hidden_shards_are_unknown_unless_declared() -> None:
    model = Gpt()
    model.layer.weight.data = torch.empty(0)  # as ZeRO-3 leaves them
    assert known(model)[0] == 0 and "hidden" in known(model)[1]
    whole = DeclaredCompute(layers=0, hidden=0, sequence=0, parameters=1000)
    assert known(model, declared=whole) == (6000, "declared")


def test_a_lazy_module_that_was_never_called_is_unknown() -> None:
    assert known(nn.LazyLinear(3))[0] == 0 and "lazy" in known(nn.LazyLinear(3))[1]


@pytest.mark.parametrize("missing", ["layers", "hidden", "sequence"])
def test_without_the_shape_attention_is_unknown(missing: str) -> None:
    numbers = {"layers": 2, "hidden": 8, "sequence": 16} | {missing: None}
    found = known(Gpt(), declared=DeclaredCompute(**numbers))  # type: ignore[arg-type]
    assert found[0] == 0 and "declare_compute" in found[1]


@pytest.mark.parametrize(
    ("device", "dtype", "autocast", "peak", "why"),
    [
        (H200, torch.bfloat16, None, 989e12, ""),
        (H200, torch.float32, torch.bfloat16, 989e12, ""),
        (H200, torch.float32, None, 0, "type"),
        (H200, torch.float64, torch.bfloat16, 0, "type"),
        ("NVIDIA H200 MIG 1g.18gb", torch.bfloat16, None, 0, "not in the table"),
        ("NVIDIA GeForce RTX 4090", torch.bfloat16, None, 0, "not in the table"),
        (None, torch.bfloat16, None, 0, "CPU"),
    ],
)  # fmt: skip
def test_the_peak_is_that_of_this_very_device_and_type(
    device: str | None, dtype: torch.dtype, autocast: torch.dtype | None, peak: float, why: str
) -> None:
    found = compute.facts([Gpt().to(dtype)], SHAPE, device, autocast)
    assert found.peak_flops == peak
    assert why in NOTES[found.note]
    declared = compute.facts([Gpt()], DeclaredCompute(2, 8, 16, peak_flops=5e9), device, None)
    assert (declared.peak_flops, NOTES[declared.note]) == (5 * 10**9, "counted")


def test_a_declared_type_decides() -> None:
    declared = DeclaredCompute(2, 8, 16, dtype="bfloat16")
    assert compute.facts([Gpt()], declared, H200, None).peak_flops == 989e12


def test_models_that_mix_types_have_no_peak() -> None:
    found = compute.facts([Gpt(), Gpt().to(torch.bfloat16)], SHAPE, H200, None)
    assert found.peak_flops == 0


def test_peaks_are_of_dense_matrices() -> None:
    assert peaks.peak("NVIDIA A100-SXM4-80GB") == 312e12
    assert peaks.peak("NVIDIA H100 80GB HBM3") == peaks.peak("H200") == 989e12
    assert peaks.peak("") == 0.0


def test_each_note_has_its_number() -> None:
    assert NOTES[rank_facts.ON_CPU] == NOTES[-1]
    assert "peak" in NOTES[rank_facts.NO_PEAK] and "frozen" in NOTES[rank_facts.FROZEN]
