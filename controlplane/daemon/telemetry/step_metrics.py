"""Define the metrics of what steps are worth: where their time goes, what devices achieve, gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.daemon.telemetry.making import JOB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controlplane.analysis.live.efficiency import Efficiency
    from controlplane.analysis.live.numbers import NumberSummary
    from controlplane.daemon.telemetry.making import MetricMaker


class StepMetrics:
    """The part of a coordinator's metrics that diagnosis sets."""

    def _make_steps(self, make: MetricMaker) -> None:
        self.step_phase_ratio = make.gauge(
            "step_phase_ratio",
            "Share of a typical rank's step that goes into a phase; where nothing was measured, absent.",
            JOB,
            "phase",
        )
        self.step_slowdown_ratio = make.gauge(
            "step_slowdown_ratio",
            "How many times as long a step takes as if no rank were slower than its peers; NaN: unknown.",
            JOB,
        )
        self.failed_detectors = make.gauge(
            "failed_detectors",
            "Parts of a job's diagnosis that raised an error when they last ran.",
            JOB,
        )
        self.job_eta_seconds = make.gauge(
            "job_eta_seconds",
            "Seconds until a job's training ends, as far as its script says so; absent while unknown.",
            JOB,
        )
        self._make_worth(make)
        self._make_numbers(make)

    def _make_worth(self, make: MetricMaker) -> None:
        self.goodput_ratio = make.gauge(
            "goodput_ratio",
            "Share of a job's time that was productive and kept, over all of its lives.",
            JOB,
        )
        self.samples_per_second = make.gauge(
            "samples_per_second", "Samples that a job's steps take in; absent while unknown.", JOB
        )
        self.tokens_per_second = make.gauge(
            "tokens_per_second", "Tokens that a job's steps take in; absent while unknown.", JOB
        )
        self.mfu_ratio = make.gauge(
            "mfu_ratio", "Model FLOPs utilization of a job's devices; absent while unknown.", JOB
        )

    def _make_numbers(self, make: MetricMaker) -> None:
        self._parameters: dict[str, tuple[str, ...]] = {}  # by job: those that have a value
        self.training_loss = make.gauge(
            "training_loss",
            "Newest loss that session.watch has measured, or rank 0 told; NaN: unknown or not finite.",
            JOB,
        )
        self.gradient_norm = make.gauge(
            "gradient_norm", "Newest L2 norm of the whole gradient; NaN: unknown or not finite.", JOB
        )
        self.gradient_parameter_norm = make.gauge(
            "gradient_parameter_norm",
            "L2 norms of the gradients of the parameters with the largest ones, five at most.",
            JOB,
            "parameter",
        )
        self.gradient_noise_scale_samples = make.gauge(
            "gradient_noise_scale_samples", "Gradient noise scale; NaN: unknown.", JOB
        )
        self.steps_left_out = make.gauge(
            "steps_left_out", "Steps left out because of NaN or Inf, since the ranks' processes began.", JOB
        )

    def forget_steps(self) -> None:
        """Clear what only a leader knows of steps, after leadership."""
        for gauge in (
            *(self.step_phase_ratio, self.step_slowdown_ratio, self.failed_detectors),
            *(self.training_loss, self.gradient_norm),
            *(self.gradient_parameter_norm, self.gradient_noise_scale_samples, self.steps_left_out),
            *(
                self.job_eta_seconds,
                self.goodput_ratio,
                self.samples_per_second,
                self.tokens_per_second,
                self.mfu_ratio,
            ),
        ):
            gauge.clear()
        self._parameters.clear()

    def show_steps(self, job: str, shares: Mapping[str, float], slowdown_ratio: float) -> None:
        """Set where a typical rank's step goes, by phase, and what the slowest ranks cost."""
        for phase, share in shares.items():
            self.step_phase_ratio.labels(job, phase).set(share)
        self.step_slowdown_ratio.labels(job).set(slowdown_ratio)

    def show_failed(self, job: str, count: int) -> None:
        """Set how many parts of a job's diagnosis raise an error."""
        self.failed_detectors.labels(job).set(count)

    def show_goodput(self, job: str, goodput: float | None) -> None:
        """Set a job's goodput; None: it is not known, and has no series."""
        if goodput is not None:
            self.goodput_ratio.labels(job).set(goodput)
        else:
            self.goodput_ratio.remove(job)

    def show_eta(self, job: str, eta_s: float | None) -> None:
        """Set when a job ends; None: it is not known, and has no series."""
        if eta_s is not None:
            self.job_eta_seconds.labels(job).set(eta_s)
        else:
            self.job_eta_seconds.remove(job)

    def show_efficiency(self, job: str, found: Efficiency) -> None:
        """Set what a job's devices achieve. What is not known has no series: an old value would mislead."""
        rates = (self.samples_per_second, found.samples_per_s), (self.tokens_per_second, found.tokens_per_s)
        for gauge, value in (*rates, (self.mfu_ratio, found.mfu)):
            if value is not None:
                gauge.labels(job).set(value)
            else:
                gauge.remove(job)

    def show_numbers(self, job: str, numbers: NumberSummary) -> None:
        """Set the newest loss and gradient of a job; NaN where one is not known, or not finite."""
        self.training_loss.labels(job).set(numbers.loss)
        self.gradient_norm.labels(job).set(numbers.norm)
        self.gradient_noise_scale_samples.labels(job).set(numbers.noise_samples)
        self.steps_left_out.labels(job).set(numbers.skipped)
        for name in self._parameters.pop(job, ()):
            self.gradient_parameter_norm.remove(job, name)
        self._parameters[job] = tuple(name for name, _ in numbers.parameters)
        for name, norm in numbers.parameters:
            self.gradient_parameter_norm.labels(job, name).set(norm)
