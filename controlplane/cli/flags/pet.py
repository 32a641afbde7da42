"""Take torchrun's flags from its environment variables, and refuse those that cannot be kept.

torchrun reads every flag from a variable too: PET_ and the flag's name in upper case, as PET_NNODES; a flag
on the command line counts more. Kubeflow Trainer's controller sets PET_NNODES, PET_NPROC_PER_NODE,
PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT. Holdfast's own flags are read in the same way, so that a
TrainJob whose command is made by a program can still give them, as PET_CHECKPOINT_EVERY."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NoReturn

from controlplane.cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controlplane.cli.flags.parser import Parser

PREFIX = "PET_"
REFUSED: dict[str, str] = {
    "--run-path": "ranks run a script, a module or a program: give one of these",
    "--event-log-handler": "events go to the coordinator's journal: see `holdfast events`",
    "--duplicate-stdout-filters": "lines of ranks are not filtered: see `holdfast logs JOB --rank N`",
    "--duplicate-stderr-filters": "lines of ranks are not filtered: see `holdfast logs JOB --rank N`",
    "--local-addr": "nodes are reached at the address of their agent: give --address to the agent",
    "--logs-specs": "a class of the script's own cannot take over the logs of ranks",
    "--signals-to-handle": "SIGTERM makes the ranks leave at the end of a step; others keep their effect",
    "--shutdown-timeout": "how long ranks may take to end is a setting of the agent",
}
"""torchrun's flags that Holdfast does not have, with the reason."""
IN_A_POD: dict[str, str] = {
    "--log-dir": "the agent keeps the output of ranks: see `holdfast logs`",
    "--redirects": "the agent shows the output of ranks, in its own container: set agent.settings there",
    "--tee": "the agent shows the output of ranks, in its own container: set agent.settings there",
    "--local-ranks-filter": "set agent.settings.show_local_ranks of the runtime",
}
"""torchrun's flags that only `holdfast run` can keep, with the reason."""
_SHORT = {"--redirects": ("-r",), "--tee": ("-t",)}
_SWITCHES = ("--run-path",)


class _Refuse(argparse.Action):
    """Refuses its flag, with the reason."""

    def __init__(self, why: str, **words: Any) -> None:
        super().__init__(**words, help=argparse.SUPPRESS, default=argparse.SUPPRESS)
        self._why = why

    def __call__(self, *_words: Any) -> NoReturn:
        raise argparse.ArgumentError(self, f"not possible here: {self._why}")


def refuse(parser: Parser, reasons: Mapping[str, str]) -> None:
    """Add these flags, so that whoever gives one is told why it cannot be kept."""
    for flag, why in reasons.items():
        count = 0 if flag in _SWITCHES else None
        parser.add_argument(flag, *_SHORT.get(flag, ()), action=_Refuse, why=why, nargs=count)


def variables(parser: Parser, environment: Mapping[str, str]) -> list[str]:
    """The flags that these variables give, as words of the command line. Raises UsageError for a switch that
    is not a number."""
    found = []
    for action in parser._actions:
        flag = next((each for each in action.option_strings if each.startswith("--")), "")
        name = PREFIX + flag.removeprefix("--").replace("-", "_").upper()
        if flag and name in environment:
            found += _word(flag, action, name, environment[name])
    return found


def _word(flag: str, action: argparse.Action, name: str, text: str) -> list[str]:
    if action.nargs != 0:
        return [f"{flag}={text}"]
    try:
        on = bool(int(text))
    except ValueError as error:
        raise UsageError(f"{name}={text!r} is neither 0 nor 1") from error
    off = f"--no-{flag.removeprefix('--')}"
    return [flag] if on else [off] if off in action.option_strings else []
