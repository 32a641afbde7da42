"""Define the flag `-o` of every command that shows something, and write its formats."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from controlplane.cli.flags.parser import one_of
from controlplane.cli.kubernetes.yaml_text import document

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.cli.flags.parser import Parser

TABLE, WIDE, JSON, YAML = "table", "wide", "json", "yaml"
FORMS = (TABLE, WIDE, JSON, YAML)
NAME = "name"
"""One more format where single things are shown: only what each of them is called."""


def add_output(
    parser: Parser, about: str = "", *, json_flag: bool = False, former: str = "", names: bool = False
) -> None:
    """Add the flag; with `json_flag` also `--json`. `former`: an old word for `table` that is still
    accepted. `names`: NAME is a format too."""
    forms = (*FORMS, NAME) if names else FORMS
    words = "|".join(forms)
    known = one_of(*forms, former=(former,) if former else ())
    about = f"format of the output; {about}" if about else "format of the output"
    parser.add_argument("-o", "--output", type=known, default=TABLE, metavar=words, help=about)
    if json_flag:
        parser.add_argument(
            "--json", action="store_const", const=JSON, dest="output", help="the same as -o json"
        )


def for_programs(form: str) -> bool:
    """Whether this format is for programs, so that no text for people need be made."""
    return form in _DATA


def data(form: str, value: Any) -> str:
    """Plain data in this format; "" when the format is for people."""
    write = _DATA.get(form)
    return write(value).rstrip("\n") if write is not None else ""


def part(form: str, value: Any) -> str:
    """One of many items: as a line of JSON or a YAML document; "" when the format is for people."""
    if form == YAML:
        return f"---\n{document(value)}".rstrip("\n")
    return json.dumps(value, separators=(",", ":")) if form == JSON else ""


_DATA: dict[str, Callable[[Any], str]] = {JSON: lambda value: json.dumps(value, indent=2), YAML: document}
