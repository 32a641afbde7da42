"""Make the state that is saved: a GPT's weights and AdamW's moments, by flat names."""

from __future__ import annotations

import torch

SIZES = {0.04: (2, 96), 0.4: (6, 512), 1.3: (12, 768)}
"""Sizes in GB, approximately: (layers, width). The exact bytes are reported."""
VOCABULARY = 32_000

State = dict[str, torch.Tensor]


def gpt(layers: int, width: int, seed: int = 0) -> State:
    """fp32 weights with both moments of AdamW.

    The values are as after some training: incompressible mantissas, exponents of a narrow range."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"tok.weight": (VOCABULARY, width), "lnf.weight": (width,)}
    for layer in range(layers):
        at = f"blocks.{layer}."
        shapes |= {
            at + "ln1.weight": (width,),
            at + "qkv.weight": (3 * width, width),
            at + "proj.weight": (width, width),
            at + "ln2.weight": (width,),
            at + "fc1.weight": (4 * width, width),
            at + "fc2.weight": (width, 4 * width),
        }
    state: State = {}
    for name, shape in shapes.items():
        state[f"model.{name}"] = torch.randn(shape, generator=generator) * 0.02
        state[f"optimizer.{name}.exp_avg"] = torch.randn(shape, generator=generator) * 1e-4
        state[f"optimizer.{name}.exp_avg_sq"] = torch.rand(shape, generator=generator) * 1e-8
        state[f"optimizer.{name}.step"] = torch.tensor(100.0)
    return state


def nbytes(state: State) -> int:
    """The bytes of all tensors."""
    return sum(tensor.nbytes for tensor in state.values())


def train_a_little(state: State) -> None:
    """Change every value, as an optimizer's step does."""
    for tensor in state.values():
        tensor.mul_(1.0001)


def changed_names(state: State) -> list[str]:
    """The names of a fiftieth of the state: what a LoRA adapter, a few routed experts or an unfrozen head
    changes."""
    budget, chosen = nbytes(state) // 50, []
    for name in sorted(state, key=lambda name: -state[name].nbytes):
        if state[name].nbytes <= budget and "blocks" in name:
            chosen.append(name)
            budget -= state[name].nbytes
    return chosen


class Holder:
    """The state as an object with state_dict and load_state_dict, for the SDK to track."""

    def __init__(self, state: State) -> None:
        self.state = state

    def state_dict(self) -> State:
        """The live tensors."""
        return self.state

    def load_state_dict(self, given: State) -> None:
        """Copy these values into the live tensors."""
        torch._foreach_copy_(list(self.state.values()), [given[name] for name in self.state])
