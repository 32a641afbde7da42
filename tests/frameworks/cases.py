"""List the cases: those that come out as they do undisturbed, and those of plain_cases and refused_cases."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.frameworks.case import (
    MAY_BEGIN_AGAIN,
    ONCE_PER_PROCESS,
    OWN_AGAIN,
    SCRIPTS,
    WITHIN_A_STEP,
    Case,
    Kill,
)
from tests.frameworks.compiled_cases import COMPILED
from tests.frameworks.plain_cases import PLAIN
from tests.frameworks.ports import (
    ACCELERATE_CHANGES,
    ACCELERATE_ON_GPU,
    ACCELERATE_PORT,
    ACCELERATE_SCALED,
    AVERAGE_PORT,
    FABRIC_AVERAGE_PORT,
    FABRIC_ON_GPU,
    FABRIC_PORT,
    FABRIC_SCALED,
    HF_CHANGES,
    HF_CYCLES,
    HF_PORT,
    HF_RESUMES,
    HF_SCALED,
    LIGHTNING_CHANGES,
    LIGHTNING_CLI_PORT,
    LIGHTNING_PORT,
    LIGHTNING_RESUMES,
    LIGHTNING_SCALED,
    PLATEAU_PORT,
    SEQ2SEQ_PORT,
    Changes,
)
from tests.frameworks.refused_cases import NAMED, REFUSED

if TYPE_CHECKING:
    from collections.abc import Collection


def _hf(name: str, kill: Kill) -> Case:
    return Case(f"hf_{name}", "hf", SCRIPTS / "hf_trainer.py", kill, (), HF_PORT, MAY_BEGIN_AGAIN)


def _hf_logs(name: str, kill: Kill) -> Case:
    """A callback evaluates in `on_step_end`, so that may be called again at all ranks."""
    again = MAY_BEGIN_AGAIN | {"on_step_end"}
    return Case(f"hf_logs_{name}", "hf", SCRIPTS / "hf_logs.py", kill, (), AVERAGE_PORT, again)


def _plateau(name: str, kill: Kill) -> Case:
    script = SCRIPTS / "hf_plateau.py"
    return Case(f"hf_plateau_{name}", "hf", script, kill, (), PLATEAU_PORT, MAY_BEGIN_AGAIN)


def _seq2seq(name: str, kill: Kill) -> Case:
    script = SCRIPTS / "hf_seq2seq.py"
    return Case(f"hf_seq2seq_{name}", "hf", script, kill, (), SEQ2SEQ_PORT, MAY_BEGIN_AGAIN)


HF_AGAIN, HF_EXAMPLE = SCRIPTS / "hf_again.py", SCRIPTS / "hf_example.py"
METRICS, PREDICTED = "lightning_metrics.py", "lightning_predicted.py"
BATCHES, PREDICTS = frozenset({"on_train_batch_end"}), frozenset({"on_predict_end"})
SAVED = frozenset({"on_train_epoch_end", "on_save_checkpoint"})


def _lightning(
    name: str, kill: Kill, *arguments: str, ends: Collection[str] = (), script: str = "lightning_trainer.py"
) -> Case:
    """`ends`: events at the end of the step in which the kill is: the step runs again, and they with it."""
    again = ONCE_PER_PROCESS | WITHIN_A_STEP | set(ends)
    return Case(f"lightning_{name}", "lightning", SCRIPTS / script, kill, arguments, LIGHTNING_PORT, again)


EVERYTHING = (
    MAY_BEGIN_AGAIN
    | WITHIN_A_STEP
    | ONCE_PER_PROCESS
    | SAVED
    | BATCHES
    | {"on_epoch_begin", "on_epoch_end", "on_step_end", "on_log", "on_evaluate", "on_save", "on_exception"}
    | {"on_validation_end"}
)
"""All but the end of the training."""


def _accelerate(name: str, kill: Kill, *arguments: str, on_gpu: Changes | None = None) -> Case:
    script = SCRIPTS / "accelerate_loop.py"
    port = ACCELERATE_PORT
    return Case(f"accelerate_{name}", "accelerate", script, kill, arguments, port, OWN_AGAIN, on_gpu=on_gpu)


def _over_epochs() -> Case:
    name, kill = "accelerate_over_epochs", Kill("forward", 2, nth=14)
    return Case(name, "accelerate", SCRIPTS / f"{name}.py", kill, (), ACCELERATE_PORT, OWN_AGAIN)


def _fabric(name: str, kill: Kill, *arguments: str, on_gpu: Changes | None = None) -> Case:
    script = SCRIPTS / "fabric_loop.py"
    port = FABRIC_PORT
    return Case(f"fabric_{name}", "fabric", script, kill, arguments, port, OWN_AGAIN, on_gpu=on_gpu)


def _averages(framework: str, port: Changes, late: int) -> tuple[Case, ...]:
    """An average of the weights, and a stop by its loss: killed when the average has changed, and in a `late`
    step, when the loss has been best."""
    script = SCRIPTS / f"{framework}_average.py"
    kills = {"average": Kill("scheduler", 14), "early_stop": Kill("evaluation", late, rank=0)}
    return tuple(
        Case(f"{framework}_{name}", framework, script, kill, (), port, OWN_AGAIN)
        for name, kill in kills.items()
    )


def _unmodified(framework: str, script: str, kill: Kill, resumes: Changes) -> Case:
    """A script without a line of Holdfast's: all ranks are started again, and go on from its own checkpoint,
    so what happened since then happens again."""
    name, parts = f"{framework}_unmodified", ("weights", "optimizer", "scheduler")
    return Case(name, framework, SCRIPTS / script, kill, again=EVERYTHING, setting=resumes, only=parts)


CASES: tuple[Case, ...] = (
    _hf("mid_epoch", Kill("forward", 7, nth=30)),
    _hf("evaluation", Kill("on_prediction_step", 12, nth=1)),
    _hf("logging_rank_0", Kill("on_log", 14, rank=0)),
    _hf("save", Kill("on_save", 12, rank=0)),
    _lightning("mid_epoch", Kill("forward", 3, nth=3)),
    _lightning("mid_accumulation", Kill("forward", 8, nth=12)),
    _lightning("backward", Kill("backward", 8, nth=12)),
    _lightning("workers", Kill("forward", 8, nth=7), "--num-workers", "1"),
    _lightning("validation", Kill("on_validation_batch_end", 6, nth=2)),
    _lightning("logging_rank_0", Kill("forward", 4, rank=0, nth=7)),
    _lightning("metrics", Kill("forward", 9, nth=9), script=METRICS),
    _lightning("metrics_rank_0", Kill("on_validation_batch_end", 8, rank=0, nth=1), script=METRICS),
    _lightning("after_optimizer", Kill("on_train_batch_end", 14), ends=BATCHES),
    _lightning("save", Kill("on_save_checkpoint", 6, rank=0, nth=1), ends=SAVED),
    _hf("optimizer", Kill("optimizer", 14)),
    _hf("first_step", Kill("forward", 0, rank=0, nth=30)),
    _hf("end_of_epoch", Kill("on_epoch_end", 10, rank=0)),
    _hf("end_of_training", Kill("on_train_end", 20, rank=0)),
    _plateau("evaluation", Kill("on_prediction_step", 9)),
    _plateau("mid_epoch", Kill("backward", 7, rank=0)),
    _accelerate("mid_accumulation", Kill("forward", 7, nth=7)),
    _accelerate("rank_0", Kill("backward", 12, rank=0, nth=4)),
    _accelerate("workers", Kill("forward", 7, nth=7), "--num-workers", "1"),
    _accelerate("evaluation", Kill("gather_for_metrics", 10, nth=2)),
    _accelerate("logging_rank_0", Kill("log", 14, rank=0)),
    _accelerate("save", Kill("save_state", 15, rank=0)),
    _accelerate("break", Kill("gather_for_metrics", 14), "--max-steps", "14"),
    _fabric("mid_accumulation", Kill("forward", 7, nth=9)),
    _fabric("across_epochs", Kill("forward", 4, nth=9)),
    _fabric("rank_0", Kill("backward", 10, rank=0, nth=4)),
    _fabric("workers", Kill("forward", 7, nth=9), "--num-workers", "1"),
    _fabric("logging_rank_0", Kill("log_dict", 11, rank=0)),
    _fabric("save", Kill("save", 9, rank=0)),
    _fabric("evaluation", Kill("evaluation", 9, nth=9)),
    _hf("scheduler", Kill("scheduler", 7)),
    _lightning("scheduler", Kill("scheduler", 7), ends=BATCHES),
    _accelerate("scheduler", Kill("scheduler", 7, nth=1)),
    _fabric("scheduler", Kill("scheduler", 7, rank=0)),
    _accelerate("gpu_forward", Kill("forward", 3, rank=0, nth=7), on_gpu=ACCELERATE_ON_GPU),
    _accelerate("gpu_backward", Kill("backward", 17, rank=0, nth=4), on_gpu=ACCELERATE_ON_GPU),
    _fabric("gpu_forward", Kill("forward", 12, rank=0, nth=9), on_gpu=FABRIC_ON_GPU),
    _fabric("gpu_backward", Kill("backward", 3, rank=0, nth=4), on_gpu=FABRIC_ON_GPU),
    replace(_lightning("skip", Kill("on_before_optimizer_step", 4)), setting=LIGHTNING_SCALED),
    replace(_lightning("after_skip", Kill("forward", 4, nth=18)), setting=LIGHTNING_SCALED),
    replace(_fabric("skip", Kill("forward", 6, nth=9)), setting=FABRIC_SCALED),
    replace(_fabric("after_skip", Kill("forward", 6, nth=25)), setting=FABRIC_SCALED),
    replace(_accelerate("skip", Kill("forward", 7, nth=7)), setting=ACCELERATE_SCALED),
    replace(_accelerate("after_skip", Kill("forward", 7, nth=19)), setting=ACCELERATE_SCALED),
    replace(_hf("skip", Kill("forward", 7, nth=30)), setting=HF_SCALED),
    replace(_hf("after_skip", Kill("forward", 8, rank=0, nth=30)), setting=HF_SCALED),
    _unmodified("hf", "hf_trainer.py", Kill("forward", 9, nth=30), HF_RESUMES),
    _unmodified("lightning", "lightning_trainer.py", Kill("forward", 8, nth=7), LIGHTNING_RESUMES),
    *_averages("accelerate", ACCELERATE_PORT, 80),
    *_averages("fabric", FABRIC_AVERAGE_PORT, 80),
    Case(
        "hf_average", "hf", SCRIPTS / "hf_average.py", Kill("scheduler", 6), (), AVERAGE_PORT, MAY_BEGIN_AGAIN
    ),
    replace(_hf("held_model", Kill("forward", 5)), script=SCRIPTS / "hf_held.py"),
    _hf_logs("body", Kill("forward", 3)),
    _hf_logs("rank_0", Kill("on_prediction_step", 6, rank=0)),
    _lightning("parts", Kill("forward", 11, nth=9), script="lightning_parts.py"),
    _lightning("parts_rank_0", Kill("forward", 15, rank=0, nth=4), script="lightning_parts.py"),
    replace(_hf("tuned", Kill("forward", 7, nth=30)), script=SCRIPTS / "hf_tuned.py"),
    replace(_hf("own_schedule", Kill("forward", 12, nth=30)), setting=HF_CYCLES),
    _lightning("stream", Kill("forward", 9, nth=3), script="lightning_stream.py"),
    _over_epochs(),
    replace(_hf("changes", Kill("forward", 9, nth=30)), setting=HF_CHANGES),
    replace(_lightning("changes", Kill("forward", 8, nth=12)), setting=LIGHTNING_CHANGES),
    replace(_accelerate("changes", Kill("forward", 5)), setting=ACCELERATE_CHANGES),
    replace(_hf("again_evaluation", Kill("on_prediction_step", 8, nth=2)), script=HF_AGAIN),
    replace(
        _hf("again_evaluated", Kill("on_evaluate", 8, nth=1)),
        script=HF_AGAIN,
        again=MAY_BEGIN_AGAIN | {"on_evaluate", "on_log"},
    ),
    replace(_hf("again_second_trainer", Kill("forward", 16, rank=0)), script=HF_AGAIN),
    replace(_hf("example_evaluation", Kill("on_prediction_step", 8)), script=HF_EXAMPLE),
    replace(_hf("example_prediction", Kill("on_prediction_step", 8, rank=0, nth=2)), script=HF_EXAMPLE),
    _seq2seq("evaluation", Kill("on_prediction_step", 8, nth=2)),
    _seq2seq("prediction", Kill("on_prediction_step", 8, nth=4)),
    _lightning("again", Kill("forward", 11), script="lightning_again.py"),
    _lightning("validated_before", Kill("on_validation_batch_end", 0, nth=2), script="lightning_tested.py"),
    _lightning("tested", Kill("on_test_batch_end", 22, rank=0, nth=3), script="lightning_tested.py"),
    _lightning("tested_again", Kill("on_test_batch_end", 22, nth=9), script="lightning_tested.py"),
    replace(
        _lightning("cli", Kill("forward", 9, rank=0), script="lightning_cli.py"),
        changes=LIGHTNING_CLI_PORT,
        needs="jsonargparse",
    ),
    _lightning("predicted", Kill("on_predict_batch_end", 22, nth=2), ends=PREDICTS, script=PREDICTED),
    _lightning("predicted_before", Kill("on_test_batch_end", 22, rank=0, nth=4), script=PREDICTED),
    *COMPILED,
    *PLAIN,
    *REFUSED,
    *NAMED,
)
