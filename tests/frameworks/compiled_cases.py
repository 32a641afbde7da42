"""List the cases of compiled models.

A kill strikes where torch's hooks are called: around what is compiled, in the optimizer and the scheduler."""

from __future__ import annotations

from tests.frameworks.case import (
    MAY_BEGIN_AGAIN,
    ONCE_PER_PROCESS,
    OWN_AGAIN,
    SCRIPTS,
    WITHIN_A_STEP,
    Case,
    Kill,
)
from tests.frameworks.ports import (
    ACCELERATE_PORT,
    FABRIC_PORT,
    HF_PORT,
    LIGHTNING_PORT,
    Changes,
)

BACKEND = "aot_eager"
_REPORT = '            report_to="none",'
_SMALL = """class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = torch.nn.Embedding(64, 16), torch.nn.LayerNorm(16)
        self.dropout, self.last = torch.nn.Dropout(0.1), torch.nn.Linear(16, 64)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.last(self.dropout(self.norm(self.embedding(input_ids))))
        return torch.nn.functional.cross_entropy(found.flatten(0, 1), labels.flatten()), found"""
"""A language model that is compiled in a moment."""
_ACCELERATOR = '        mixed_precision="bf16", gradient_accumulation_steps=2, cpu=True, log_with=Lines()'
_LOSS = "    def _loss(self, batch: list[torch.Tensor]) -> torch.Tensor:"
_CONFIGURED = (
    "    def configure_model(self) -> None:\n"
    f'        self.layers = torch.compile(self.layers, backend="{BACKEND}")'
)
_SETTINGS: dict[str, tuple[str, Changes, frozenset[str], Changes]] = {
    "hf": (
        "hf_trainer.py",
        HF_PORT,
        MAY_BEGIN_AGAIN,
        (
            ("def main() -> None:", f"{_SMALL}\n\n\ndef main() -> None:"),
            ("        model=GPT2LMHeadModel(config),", "        model=Small(),"),
            (_REPORT, f'{_REPORT}\n            torch_compile=True, torch_compile_backend="{BACKEND}",'),
        ),
    ),
    "accelerate": (
        "accelerate_loop.py",
        ACCELERATE_PORT,
        OWN_AGAIN,
        ((_ACCELERATOR, f'{_ACCELERATOR}, dynamo_backend="{BACKEND}"'),),
    ),
    "fabric": (
        "fabric_loop.py",
        FABRIC_PORT,
        OWN_AGAIN,
        (
            (
                "    model, optimizer = fabric.setup(model, optimizer)",
                f'    model, optimizer = fabric.setup(torch.compile(model, backend="{BACKEND}"), optimizer)',
            ),
        ),
    ),
    "lightning": (
        "lightning_trainer.py",
        LIGHTNING_PORT,
        ONCE_PER_PROCESS | WITHIN_A_STEP | {"on_train_batch_end"},
        ((_LOSS, f"{_CONFIGURED}\n\n{_LOSS}"),),
    ),
}
_KILLS = {
    "forward": Kill("forward", 7, nth=2),
    "optimizer": Kill("optimizer", 9),
    "rank_0": Kill("forward", 5, rank=0, nth=2),
    "scheduler": Kill("scheduler", 12),
    "first": Kill("forward", 0, nth=1),
}


def _compiled(framework: str, name: str, kill: Kill) -> Case:
    script, port, again, setting = _SETTINGS[framework]
    title = f"{framework}_compiled_{name}"
    return Case(title, framework, SCRIPTS / script, kill, (), port, again, setting)


COMPILED: tuple[Case, ...] = tuple(
    _compiled(framework, name, kill) for framework in _SETTINGS for name, kill in _KILLS.items()
)
