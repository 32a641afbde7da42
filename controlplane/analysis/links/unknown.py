"""Name the reasons for which nothing is known of a link, or of all links of a job."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Unknown(Enum):
    """Why nobody is named. Each value is a word of `holdfast doctor --json`."""

    NONE = ""  # somebody is named
    NOT_PROBED = "not_probed"  # no probe has come in yet
    NOT_MEASURED = "not_measured"  # a probe failed, or what it says is impossible
    CROWDED = "crowded"  # an agent at one end waited for a CPU, or had to compute too long
    CALM_NOT_KNOWN = "calm_not_known"  # nobody knows whether an end was busy: an older agent, or its kernel
    SLOW_ALONE = "slow_alone"  # a node is slow in sending to itself
    TOO_FEW_ROUNDS = "too_few_rounds"  # links were not measured often enough yet
    TOO_FEW_LINKS = "too_few_links"  # there are too few other links to compare one with
    NO_REFERENCE = "no_reference"  # there is one link, and it was not measured before the suspicion
    ALIKE = "alike"  # no link carries much less than the others


class Doubt(NamedTuple):
    """Why a probe is no measurement."""

    code: Unknown
    text: str
