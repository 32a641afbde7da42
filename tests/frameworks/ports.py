"""The lines that port the scripts, as (line, line in its place); each is in its script exactly once."""

from __future__ import annotations

Changes = tuple[tuple[str, str], ...]
HF_PORT = (
    (
        "from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments",
        "from transformers import GPT2Config, GPT2LMHeadModel\n"
        "from holdfast.integrations.hf import Trainer, TrainingArguments",
    ),
)

PLATEAU_PORT = (
    ("import transformers", "import transformers\nfrom holdfast.integrations import hf"),
    ("    training_args = transformers.TrainingArguments(", "    training_args = hf.TrainingArguments("),
    ("    trainer = transformers.Trainer(", "    trainer = hf.Trainer("),
)
AVERAGE_PORT = (
    (
        "from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments",
        "from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback\n"
        "from holdfast.integrations.hf import Trainer, TrainingArguments",
    ),
)
SEQ2SEQ_PORT = (
    (
        "from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments",
        "from holdfast.integrations.hf import Seq2SeqTrainer, Seq2SeqTrainingArguments",
    ),
)
LIGHTNING_PORT = (
    (
        "from lightning.pytorch.loggers import CSVLogger",
        "from lightning.pytorch.loggers import CSVLogger\n"
        "from holdfast.integrations.lightning import HoldfastStrategy",
    ),
    ('        strategy="ddp",', "        strategy=HoldfastStrategy(),"),
)
LIGHTNING_CLI_PORT = (
    (
        '        "strategy": "ddp",',
        '        "strategy": {"class_path": "holdfast.integrations.lightning.HoldfastStrategy"},',
    ),
)
ACCELERATE_PORT = (
    (
        "from accelerate import Accelerator",
        "from holdfast.integrations.accelerate import Accelerator, elastic",
    ),
    ("def main() -> None:", "@elastic\ndef main() -> None:"),
    ("    for epoch in range(EPOCHS):", "    for epoch in accelerator.epochs(EPOCHS, train_loader):"),
)
FABRIC_PORT = (
    ("from lightning.fabric import Fabric", "from holdfast.integrations.fabric import Fabric, elastic"),
    ("def main() -> None:", "@elastic\ndef main() -> None:"),
    (
        "    progress = Progress()",
        "    progress = Progress()\n    fabric.track(progress=progress, schedule=schedule)",
    ),
    ("    for epoch in range(EPOCHS):", "    for epoch in fabric.epochs(EPOCHS, train_loader):"),
)
FABRIC_AVERAGE_PORT = (
    *FABRIC_PORT[:2],
    (
        "    stopper = Stopper()",
        "    stopper = Stopper()\n    fabric.track(stopper=stopper, schedule=schedule, average=average)",
    ),
    FABRIC_PORT[3],
)
_SCALER = 'torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)'
FABRIC_SCALED = (
    (
        '    fabric = Fabric(accelerator="cpu", devices=2, precision="bf16-mixed", loggers=Lines())',
        "    from lightning.fabric.plugins import MixedPrecision\n"
        f'    precision = MixedPrecision("16-mixed", "cpu", {_SCALER})\n'
        '    fabric = Fabric(accelerator="cpu", devices=2, plugins=precision, loggers=Lines())',
    ),
    (
        "                fabric.backward(loss / 2)",
        "                fabric.backward(loss / 2 * (1e30 if progress.batches == 14 else 1))",
    ),
    (
        "                norm = fabric.clip_gradients(model, optimizer, max_norm=1.0)",
        "                norm = fabric.clip_gradients(\n"
        "                    model, optimizer, max_norm=1.0, error_if_nonfinite=False)",
    ),
)
LIGHTNING_SCALED = (
    (
        '        precision="bf16-mixed",',
        '        plugins=[__import__("lightning").pytorch.plugins.MixedPrecision("16-mixed", "cpu",\n'
        f"            {_SCALER})],",
    ),
    (
        "        loss = self._loss(batch)",
        "        loss = self._loss(batch) * (1e30 if self.trainer.fit_loop.total_batch_idx == 9 else 1)",
    ),
    (
        "        self.log_dict(grad_norm(self, norm_type=2))",
        "        self.log_dict(grad_norm(self, norm_type=2), sync_dist=True)",
    ),
)
ACCELERATE_SCALED = (
    (
        '        mixed_precision="bf16", gradient_accumulation_steps=2, cpu=True, log_with=Lines()',
        '        mixed_precision="fp16", gradient_accumulation_steps=2, cpu=True, log_with=Lines()',
    ),
    (
        '    accelerator.init_trackers("classifier")',
        '    accelerator.init_trackers("classifier")\n'
        f"    accelerator.native_amp, accelerator.scaler = True, {_SCALER}",
    ),
    (
        "                accelerator.backward(loss)",
        "                accelerator.backward(loss * (1e30 if progress.steps == 7 else 1))",
    ),
)
HF_SCALED = (
    ("            bf16=True,", "            fp16=True,"),
    (
        "    trainer = Trainer(",
        "    class Scaled(Trainer):\n"
        "        def create_accelerator_and_postprocess(self):\n"
        "            super().create_accelerator_and_postprocess()\n"
        f"            self.accelerator.native_amp, self.accelerator.scaler = True, {_SCALER}\n\n"
        "        def compute_loss(self, *given, **named):\n"
        "            found = super().compute_loss(*given, **named)\n"
        "            return found * (1e30 if self.model.training and self.state.global_step == 7 else 1)\n\n"
        "    trainer = Scaled(",
    ),
)
"""A GradScaler, and one batch whose gradients overflow: the optimizer's step is skipped. Accelerate itself
makes a scaler for GPUs alone, and takes one that it is given."""
HF_CYCLES = (
    (
        "    trainer = Trainer(",
        "    class Cycling(Trainer):\n"
        "        def create_scheduler(self, num_training_steps, optimizer=None):\n"
        "            of, kind = optimizer or self.optimizer, torch.optim.lr_scheduler.OneCycleLR\n"
        "            self.lr_scheduler = kind(of, 0.01, total_steps=num_training_steps)\n"
        "            return self.lr_scheduler\n\n"
        "    trainer = Cycling(",
    ),
)
"""A scheduler that is made each time it is asked for, and begins its cycle of rates and betas then."""
HF_RESUMES = (
    (
        "    trainer.train()",
        "    from pathlib import Path\n\n"
        "    trainer.train(resume_from_checkpoint=any(Path(args.output_dir).glob('checkpoint-*')))",
    ),
)
LIGHTNING_RESUMES = (
    (
        '        callbacks=[ModelCheckpoint(monitor="val_loss", save_top_k=2, save_last=True)],',
        "        callbacks=[ModelCheckpoint(args.output_dir, save_last=True)],",
    ),
    (
        "        DataLoader(data, batch_size=12),",
        '        DataLoader(data, batch_size=12), ckpt_path="last",',
    ),
    ("            torch.nn.Dropout(0.1),", "            torch.nn.Dropout(0.0),"),
)
"""A script that goes on from the newest checkpoint of its own. Lightning's has no random numbers in it."""
ACCELERATE_ON_GPU = (
    (
        '        mixed_precision="bf16", gradient_accumulation_steps=2, cpu=True, log_with=Lines()',
        '        mixed_precision="fp16", gradient_accumulation_steps=2, log_with=Lines()',
    ),
)
"""The script on a GPU, with a GradScaler."""
_LOADER = (
    "    train_loader = DataLoader(Noisy({}, 1), batch_size=4, shuffle=True, num_workers=args.num_workers)"
)
FABRIC_ON_GPU = (
    (
        '    fabric = Fabric(accelerator="cpu", devices=2, precision="bf16-mixed", loggers=Lines())',
        '    fabric = Fabric(accelerator="cuda", devices=1, precision="16-mixed", loggers=Lines())',
    ),
    (_LOADER.format(69), _LOADER.format(70)),  # else the last batch of one rank has one sample
    ("        right = torch.zeros(())", "        right = torch.zeros((), device=fabric.device)"),
)
_EVALUATED = "        eval_dataset=Sequences(20, seed=2),"
HF_CHANGES = (
    (
        "def main() -> None:",
        "class Changing(__import__('transformers').TrainerCallback):\n"
        "    def on_step_end(self, given, state, control, **_):\n"
        "        if state.global_step == 3:\n"
        "            given.max_grad_norm, given.logging_steps, state.eval_steps = 0.1, 5, 4\n\n\n"
        "def main() -> None:",
    ),
    (_EVALUATED, f"{_EVALUATED}\n        callbacks=[Changing()],"),
)
"""A callback that changes arguments and state of the Trainer in the training."""
_NORMS = "        self.log_dict(grad_norm(self, norm_type=2))"
LIGHTNING_CHANGES = (
    (
        _NORMS,
        f"{_NORMS}\n\n"
        "    def on_train_epoch_start(self) -> None:\n"
        "        if self.current_epoch == 1:\n"
        "            self.hparams['scale'], self.trainer.fit_loop.max_epochs = 0.5, 3\n"
        "            self.trainer.gradient_clip_val = 0.1",
    ),
    ("        loss = self._loss(batch)", "        loss = self._loss(batch) * self.hparams.get('scale', 1.0)"),
)
"""A module that changes its hyperparameters and options of the trainer in the training."""
_LOGS = "                accelerator.log(values, step=progress.steps)"
ACCELERATE_CHANGES = (
    (
        _LOGS,
        f"{_LOGS}\n"
        "                if progress.steps == 4:\n"
        "                    accelerator.gradient_accumulation_steps = 3",
    ),
)
"""A loop that changes how many micro-batches make a step."""
