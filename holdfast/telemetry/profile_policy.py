"""Hold the limits of a profile that a person asks for, each with its reason."""

from __future__ import annotations

OPERATORS_MAX = 15
"""Rows of the table: what takes less time is rarely worth a look, and the trace has all of it."""
NAME_MAX = 120
"""Characters of an operator's name: names of C++ templates can have thousands."""
TABLE_EVENTS_MAX = 150_000
"""Events of which a table is made. torch sorts them in Python, 68 us each (measured, torch 2.13), and
shares the interpreter's lock with the script: more would slow the training for longer than 10 s."""
RAW_EVENT_BYTES = 500
"""Bytes of one event in torch's uncompressed trace, an upper estimate: a CPU operator takes 300."""
RAW_BYTES_MAX = 8 << 30
"""Size of the uncompressed trace that may be written at all: it lies there until it is compressed."""
COMPRESSION = 3
"""gzip's level: a trace shrinks to about 1/15 already, and higher levels take several times as long."""
GIVE_WAY_S = 30.0
"""How long a script's other thread that begins to profile waits until our profile has ended at a boundary."""
