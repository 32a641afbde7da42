"""List the cases of what is not kept: a script that asks for it is refused, or told, by name."""

from __future__ import annotations

from dataclasses import replace

from tests.frameworks.case import SCRIPTS, Case, Kill
from tests.frameworks.ports import (
    ACCELERATE_PORT,
    AVERAGE_PORT,
    FABRIC_PORT,
    HF_PORT,
    LIGHTNING_PORT,
    Changes,
)

_AVERAGES = "    def on_optimizer_step(self, training_args, state, control, model=None, **_) -> None:"
_KEEPS = "    def state_dict(self) -> dict[str, torch.Tensor]:"
_WEIGHTED = (
    "    class Weighted(Trainer):\n"
    "        def _get_train_sampler(self, dataset=None):\n"
    "            return torch.utils.data.WeightedRandomSampler([1.0] * 150, 150)\n\n"
    "    trainer = Weighted("
)
_LOCAL = (
    "    from accelerate.local_sgd import LocalSGD\n\n"
    "    local = LocalSGD(accelerator, model, 4).__enter__()\n    progress = Progress()"
)


def _refused(framework: str, name: str, script: str, said: str, *changes: tuple[str, str]) -> Case:
    """A script that asks for what is not kept. `said`: what it is told."""
    title = f"{framework}_refuses_{name}"
    return Case(title, framework, SCRIPTS / script, Kill("forward", 0), (), changes, refused=said)


def _variable(name: str) -> tuple[str, str]:
    """The change that sets a variable as `accelerate config` would."""
    return (
        "args = parser.parse_args()",
        f'args = parser.parse_args()\n__import__("os").environ["{name}"] = "true"',
    )


def _hf_refused(name: str, argument: str) -> Case:
    said = f"Trainer under Holdfast: {name} is not supported: "
    line = '            report_to="none",'
    return _refused("hf", name, "hf_trainer.py", said, *HF_PORT, (line, f"{line}\n            {argument},"))


def _lightning_refused(name: str, option: str) -> Case:
    port = LIGHTNING_PORT[0], (LIGHTNING_PORT[1][0], f"        strategy=HoldfastStrategy({option}),")
    said = f"HoldfastStrategy({option.partition('=')[0]}=...): "
    return _refused("lightning", name, "lightning_trainer.py", said, *port)


REFUSED: tuple[Case, ...] = (
    _refused(
        *("accelerate", "average", "accelerate_average.py"),
        "Accelerator under Holdfast: the AveragedModel is not kept, and would begin anew when a rank dies: ",
        *ACCELERATE_PORT,
        (
            "    accelerator.register_for_checkpointing(stopper, average)",
            "    accelerator.register_for_checkpointing(stopper)",
        ),
    ),
    _refused(
        *("hf", "average_in_a_tail", "hf_average.py"),
        "the callback Average, which changes the state_dict of Average in on_step_end, is not supported: ",
        *(*AVERAGE_PORT, (_AVERAGES, _AVERAGES.replace("on_optimizer_step", "on_step_end"))),
    ),
    _refused(
        *("hf", "average", "hf_average.py"),
        "the callback Average, which changes a copy of the weights, is not supported: ",
        *(*AVERAGE_PORT, (_KEEPS, _KEEPS.replace("state_dict", "state"))),
    ),
    replace(
        _refused(
            *("hf", "sampler", "hf_trainer.py"),
            "Trainer under Holdfast: a training loader with a WeightedRandomSampler is not supported: ",
            *HF_PORT,
        ),
        setting=(("    trainer = Trainer(", _WEIGHTED),),
    ),
    _refused(
        *("lightning", "average", "lightning_trainer.py"),
        "Lightning: the callback EMAWeightAveraging is not supported: ",
        *LIGHTNING_PORT,
        (
            '        callbacks=[ModelCheckpoint(monitor="val_loss", save_top_k=2, save_last=True)],',
            '        callbacks=[__import__("lightning").pytorch.callbacks.EMAWeightAveraging()],',
        ),
    ),
    replace(
        _refused(
            *("accelerate", "local_steps", "accelerate_loop.py"),
            "Accelerator under Holdfast: an optimizer's step within no_sync (LocalSGD) is not supported: ",
            *ACCELERATE_PORT,
        ),
        setting=(("    progress = Progress()", _LOCAL),),
    ),
    _hf_refused("deepspeed", 'deepspeed={"zero_optimization": {"stage": 2}}'),
    _hf_refused("fsdp", 'fsdp="full_shard"'),
    _lightning_refused("fsdp", 'sharding_strategy="FULL_SHARD"'),
    _lightning_refused("deepspeed", "stage=2"),
    _refused(
        *("accelerate", "deepspeed", "accelerate_loop.py"),
        "Accelerator under Holdfast: ACCELERATE_USE_DEEPSPEED=true is not supported: DeepSpeed owns",
        *(*ACCELERATE_PORT, _variable("ACCELERATE_USE_DEEPSPEED")),
    ),
    _refused(
        *("accelerate", "fsdp", "accelerate_loop.py"),
        "Accelerator under Holdfast: fsdp_plugin is not supported: ",
        *ACCELERATE_PORT,
        (
            '        mixed_precision="bf16", gradient_accumulation_steps=2, cpu=True, log_with=Lines()',
            '        cpu=True, fsdp_plugin=__import__("accelerate").FullyShardedDataParallelPlugin()',
        ),
    ),
    _refused(
        *("fabric", "fsdp", "fabric_loop.py"),
        "Fabric under Holdfast: strategy='fsdp' is not supported: ",
        *FABRIC_PORT,
        (
            '    fabric = Fabric(accelerator="cpu", devices=2, precision="bf16-mixed", loggers=Lines())',
            '    fabric = Fabric(accelerator="cpu", devices=2, strategy="fsdp", loggers=Lines())',
        ),
    ),
)
_COUNTING = (
    "    class Counting(torch.utils.data.Sampler):\n"
    "        calls = 0\n\n"
    "        def __len__(self):\n"
    "            return 132\n\n"
    "        def __iter__(self):\n"
    "            self.calls += 1\n"
    "            return iter([(each + self.calls) % 132 for each in range(132)])\n\n"
    "    workers = args.num_workers"
)


def _named(framework: str, name: str, script: str, said: str, port: Changes, *setting: Changes) -> Case:
    """A script that does what is not kept, with these other lines. `said`: what it is told at once."""
    title, path = f"{framework}_names_{name}", SCRIPTS / script
    return Case(title, framework, path, Kill("forward", 0), (), port, setting=sum(setting, ()), named=said)


_TRAIN_LOADER = "        DataLoader(data, batch_size=6, shuffle=True, num_workers=workers),"
_NOISE = "                loss = nn.functional.cross_entropy(model(points), kinds)"
_NOISY = (
    (
        "    progress = Progress()",
        "    progress, noise = Progress(), torch.Generator().manual_seed(1)\n"
        "    fabric.track(progress=progress, schedule=schedule)",
    ),
    (_NOISE, _NOISE.replace("points", "points + torch.randn(points.shape, generator=noise)")),
)
_CLEARED = "                optimizer.zero_grad()"
_FOLLOWED = (
    (
        "    progress = Progress()",
        "    progress = Progress()\n"
        "    average = __import__('copy').deepcopy(accelerator.unwrap_model(model))\n\n"
        "    def follow(average, model):\n"
        "        with torch.no_grad():\n"
        "            for own, theirs in zip(average.parameters(), model.parameters()):\n"
        "                own.lerp_(theirs, 0.1)\n",
    ),
    (
        "                optimizer.zero_grad()",
        "                optimizer.zero_grad()\n                follow(average, model)",
    ),
)
_UNTRACKED = "the steps change what is not tracked: "
_LOSS = "        loss = self._loss(batch)"
_LOGS = '            self.log({"micro_loss": loss.item()})'
_BATCHES = "        for points, kinds in train_loader:"
_BESIDE = "zip(train_loader, DataLoader(Noisy(99, 3), batch_size=4))"

NAMED: tuple[Case, ...] = (
    _named(
        *("lightning", "class_attribute", "lightning_trainer.py"),
        f"{_UNTRACKED}Model.calls.",
        LIGHTNING_PORT,
        ((_LOSS, f"        Model.calls = getattr(Model, 'calls', 0) + 1\n{_LOSS}"),),
    ),
    _named(
        *("hf", "variable", "hf_logs.py"),
        f"{_UNTRACKED}LOGGED",
        *(AVERAGE_PORT, ((_LOGS, f"            globals().setdefault('LOGGED', []).append(1)\n{_LOGS}"),)),
    ),
    _named(
        *("accelerate", "loader", "accelerate_loop.py"),
        f"{_UNTRACKED}DataLoader(Noisy)[",
        *(ACCELERATE_PORT, ((_BATCHES, f"        for (points, kinds), _ in {_BESIDE}:"),)),
    ),
    _named(
        *("lightning", "sampler", "lightning_trainer.py"),
        "Lightning: Counting.calls changes in the training and is not kept: ",
        LIGHTNING_PORT,
        (
            ("    workers = args.num_workers", _COUNTING),
            (_TRAIN_LOADER, _TRAIN_LOADER.replace("shuffle=True", "sampler=Counting()")),
        ),
    ),
    _named(
        *("fabric", "generator", "fabric_loop.py"),
        "'noise' changes from step to step and is not tracked. ",
        *(FABRIC_PORT[:2] + FABRIC_PORT[3:], _NOISY),
    ),
    _named(
        *("accelerate", "average", "accelerate_loop.py"),
        f"{_UNTRACKED}average.",
        *(ACCELERATE_PORT, _FOLLOWED),
    ),
)
