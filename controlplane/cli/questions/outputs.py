"""The flag `-o table|wide|json|yaml` of every command that shows something, and what it prints."""

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


def add_output(parser: Parser, about: str = "", *, json_flag: bool = False, former: str = "") -> None:
    """Add the flag, with `json_flag` also `--json`. `former` is an old word for `table` that still works."""
    words = "|".join(FORMS)
    known = one_of(*FORMS, former=(former,) if former else ())
    about = f"format of the output; {about}" if about else "format of the output"
    parser.add_argument("-o", "--output", type=known, default=TABLE, metavar=words, help=about)
    if json_flag:
        parser.add_argument(
            "--json", action="store_const", const=JSON, dest="output", help="the same as -o json"
        )


def for_programs(form: str) -> bool:
    """Return whether this form is for programs: then the text for people need not be made."""
    return form in _DATA


def data(form: str, value: Any) -> str:
    """Plain data for programs; "" when the form is one for people."""
    write = _DATA.get(form)
    return write(value).rstrip("\n") if write is not None else ""


def part(form: str, value: Any) -> str:
    """One of many that come one after another: a line of JSON, or a YAML document; "" for people's forms."""
    if form == YAML:
        return f"---\n{document(value)}".rstrip("\n")
    return json.dumps(value, separators=(",", ":")) if form == JSON else ""


_DATA: dict[str, Callable[[Any], str]] = {JSON: lambda value: json.dumps(value, indent=2), YAML: document}
