"""List the cases of compiled models.

A kill strikes where torch's hooks are called: around what is compiled, in the optimizer and the scheduler."""

from __future__ import annotations

from tests.frameworks.case import (
    OWN_AGAIN,
    SCRIPTS,
    Case,
    Kill,
)
from tests.frameworks.ports import (
    ACCELERATE_PORT,
    FABRIC_PORT,
    Changes,
)

BACKEND = "aot_eager"
_ACCELERATOR = '        mixed_precision="bf16", gradient_accumulation_steps=2, cpu=True, log_with=Lines()'
_SETTINGS: dict[str, tuple[str, Changes, frozenset[str], Changes]] = {
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
}
_KILLS = {
    "forward": Kill("forward", 7, nth=2),
    "optimizer": Kill("optimizer", 9),
    "rank_0": Kill("forward", 5, rank=0, nth=3),
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
