"""Draw a terminal as SVG from a transcript: `python docs/site/picture.py demo.txt demo.svg`.

The text is real output (docs/site/record.py writes it); only its colours are added here, by STYLES. The
picture names no font of another site, so that it is the same without a network."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 100
STYLES = {
    r"^\$ .*$": "bold white",
    r"SIGKILL": "bold red",
    r"recovered after .*": "bold green",
    r"0 steps lost": "bold green",
    r"yes, bit for bit on all 4 ranks": "bold green",
    r"0 repeated, 0 skipped": "bold green",
    r"checkpoint [-\d]+ committed": "cyan",
    r"incident \d+:?": "yellow",
    r"^Verdict$": "bold",
}
"""Regular expressions, and how what they find is shown."""

_FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def picture(transcript: str, title: str) -> str:
    """The SVG of a terminal that shows this text. Lines longer than COLUMNS are wrapped."""
    console = Console(file=io.StringIO(), record=True, width=COLUMNS, color_system="truecolor")
    for line in transcript.splitlines():
        text = Text(line)
        for pattern, style in STYLES.items():
            text.highlight_regex(pattern, style)
        console.print(text, overflow="fold")
    return console.export_svg(title=title, code_format=_FORMAT, unique_id="demo")


def main() -> None:
    """Draw the file that is named first into the one that is named second."""
    source, drawn = map(Path, sys.argv[1:3])
    drawn.write_text(picture(source.read_text(), source.stem))


if __name__ == "__main__":
    main()
