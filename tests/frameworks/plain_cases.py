"""List the cases of what Holdfast must not change: the framework alone comes to the same, bit for bit.

Holdfast draws random numbers from the seed and the step, which no framework does: so these scripts draw none
once their weights are made. Their samples come in the framework's order, by design; Accelerate's is that of
`use_seedable_sampler`, which Holdfast switches on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.frameworks.case import SCRIPTS, Case, Kill
from tests.frameworks.ports import (
    ACCELERATE_PORT,
    AVERAGE_PORT,
    FABRIC_AVERAGE_PORT,
    FABRIC_PORT,
    HF_PORT,
    LIGHTNING_PORT,
    PLATEAU_PORT,
)

if TYPE_CHECKING:
    from tests.frameworks.ports import Changes


def _with(line: str, was: str, instead: str) -> tuple[str, str]:
    """The change of a line that has this in it."""
    return line, line.replace(was, instead)


_OFF = "n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0"
_GPT2 = "    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer={}, n_head=2)"
_SIZES = (
    '    sizes = {"hidden_size": 16, "num_hidden_layers": 1, '
    '"num_attention_heads": 2, "intermediate_size": 32}'
)
_NOISE = "        return self.points[index] + 0.1 * torch.randn(8), self.kinds[index]"
_LAYERS = (
    "    model = nn.Sequential("
    "nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))"
)
_ACCELERATOR = '        mixed_precision="bf16", gradient_accumulation_steps=2, cpu=True, log_with=Lines()'
_WHOLE = "    accelerator = Accelerator(gradient_accumulation_plugin=whole, cpu=True, log_with=Lines())"
_SEEDABLE = (
    "log_with=Lines(),\n"
    '        dataloader_config=__import__("accelerate").DataLoaderConfiguration(use_seedable_sampler=True)'
)
_HF = (_with(_GPT2.format(2), "n_head=2", _OFF),)
_HF_EXAMPLE = (_with(_GPT2.format(1), "n_head=2", _OFF),)
_HF_LOGS = (
    _with(_GPT2.format(1), "n_head=2", _OFF),
    _with("        hidden = torch.from_numpy(self.rng.random(16) < 0.2)", "0.2", "0.0"),
    _with(
        '            self.log({"micro_loss": loss.item()})',
        "loss.item()",
        'self.accelerator.reduce(loss.detach(), "mean").item()',
    ),
)
"""Ranks log one loss: under Holdfast `log_history` has rank 0's entries on every rank, by design."""
_HF_AVERAGE = (
    _with(
        "    model = GPT2LMHeadModel("
        "GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2))",
        "n_head=2",
        _OFF,
    ),
)
_HF_TUNED = (*_HF, ("            neftune_noise_alpha=5.0,", ""))
_HF_PLATEAU = (
    _with(_SIZES, "{", '{"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, '),
    _with("    ids[torch.rand(ids.shape) < 0.1] = 1", "0.1", "0.0"),
    _with(
        '        return {"input_ids": row.roll(int(torch.randint(3, ()))), "labels": (row.sum() % 2)}',
        ".roll(int(torch.randint(3, ())))",
        "",
    ),
)
_LIGHTNING = (_with("            torch.nn.Dropout(0.1),", "0.1", "0.0"),)
_LIGHTNING_METRICS = (
    _with(
        "            torch.nn.Linear(16, 32), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(32, 3)",
        "0.2",
        "0.0",
    ),
)
_LIGHTNING_PREDICTED = (
    _with('        return {"guess": self(batch[0]), "drawn": torch.rand(())}', "rand", "zeros"),
    ('    assert drawn[0] != first[0]["drawn"], "all predictions draw the same numbers"', ""),
)
_FABRIC = (_with(_NOISE, " + 0.1 * torch.randn(8)", ""), _with(_LAYERS, "0.2", "0.0"))
_FABRIC_AVERAGE = (_with(_LAYERS, "nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2)", "nn.ReLU()"),)
"""No batch norm: each rank measures its unwrapped average, and DistributedDataParallel leaves each rank its
own statistics until the next forward, where Holdfast gives rank 0's to all at once, by design."""
_ACCELERATE_AVERAGE = (
    *_FABRIC_AVERAGE,
    _with("    accelerator = Accelerator(cpu=True, log_with=Lines())", "log_with=Lines()", _SEEDABLE),
)
_ACCELERATE = (*_FABRIC, _with(_ACCELERATOR, "log_with=Lines()", _SEEDABLE))
_OVER_EPOCHS = (
    _with(
        "        return self.points[index] + 0.1 * noise, (self.points[index].sum() > 0).long()",
        " + 0.1 * noise",
        "",
    ),
    _with(
        "    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))",
        "0.2",
        "0.0",
    ),
    _with(_WHOLE, "log_with=Lines()", _SEEDABLE),
)


def _plain(name: str, script: str, port: Changes, still: Changes, *arguments: str) -> Case:
    """`still`: the changes after which the script draws no random numbers in its steps."""
    framework, none = name.partition("_")[0], Kill("forward", 0)
    return Case(name, framework, SCRIPTS / script, none, arguments, port, setting=still, plain=True)


def _rates(schedule: str) -> Case:
    script, words = "lightning_rates.py", ("--schedule", schedule)
    return _plain(f"lightning_plain_{schedule}", script, LIGHTNING_PORT, (), *words)


PLAIN: tuple[Case, ...] = (
    _plain("hf_plain", "hf_trainer.py", HF_PORT, _HF),
    _plain("hf_plain_logs", "hf_logs.py", AVERAGE_PORT, _HF_LOGS),
    _plain("hf_plain_example", "hf_example.py", HF_PORT, _HF_EXAMPLE),
    _plain("hf_plain_tuned", "hf_tuned.py", HF_PORT, _HF_TUNED),
    _plain("hf_plain_plateau", "hf_plateau.py", PLATEAU_PORT, _HF_PLATEAU),
    _plain("hf_plain_average", "hf_average.py", AVERAGE_PORT, _HF_AVERAGE),
    _plain("lightning_plain", "lightning_trainer.py", LIGHTNING_PORT, _LIGHTNING),
    _plain("lightning_plain_again", "lightning_again.py", LIGHTNING_PORT, ()),
    _plain("lightning_plain_tested", "lightning_tested.py", LIGHTNING_PORT, ()),
    _plain("lightning_plain_predicted", "lightning_predicted.py", LIGHTNING_PORT, _LIGHTNING_PREDICTED),
    _plain("lightning_plain_metrics", "lightning_metrics.py", LIGHTNING_PORT, _LIGHTNING_METRICS),
    replace(
        _plain("lightning_plain_parts", "lightning_parts.py", LIGHTNING_PORT, ()),
        only=("rates", "scheduler", "progress"),
    ),
    _rates("milestones"),
    _rates("epochs"),
    _rates("one_cycle"),
    _rates("sequence"),
    _plain("accelerate_plain", "accelerate_loop.py", ACCELERATE_PORT, _ACCELERATE),
    _plain("accelerate_plain_average", "accelerate_average.py", ACCELERATE_PORT, _ACCELERATE_AVERAGE),
    _plain("accelerate_plain_over_epochs", "accelerate_over_epochs.py", ACCELERATE_PORT, _OVER_EPOCHS),
    _plain("fabric_plain", "fabric_loop.py", FABRIC_PORT, _FABRIC),
    _plain("fabric_plain_average", "fabric_average.py", FABRIC_AVERAGE_PORT, _FABRIC_AVERAGE),
)
"""Nothing is killed. Of `lightning_plain_parts` only rates and counts are compared: its order of samples is
drawn, and plain DDP does not average the gradients of what BaseFinetuning unfreezes, which Holdfast does."""
