"""Read Python tracebacks line by line: frames, the exception, and the chain in which it stands.

`Tracebacks.take` is given every line of one stream and answers whether the line belongs to a traceback. A
traceback begins with its headline (or with a frame, for a SyntaxError) and ends with the line of its
exception, or is cut off: lines may be missing, and lines of other threads may stand in between.

In a chain the exception that was raised first counts. Where an exception is copied into the message of
another one (a DataLoader's worker, `torch.multiprocessing.spawn`), the copied one counts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from controlplane.analysis.failure_logs import policy

_HEAD = "Traceback (most recent call last)"
_FATAL = "Fatal Python error: "
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_COPYING = (
    "Caught ",
    "sub-exception",
    "terminated with the following error",
    "ray::",
    "Unhandled exception in",
)
_FRAME = re.compile(
    r'[\s|+]{0,60}File "?(?P<file>[^"\n]{1,400})"?, line (?P<line>\d{1,9})(?:,? in (?P<name>.{1,200}))?$'
)
_BOXED = re.compile(r"[│|]\s{1,4}(?P<file>[^\s│]{1,400}):(?P<line>\d{1,9}) in (?P<name>\S{1,200})")
_BOX = "╭╰│"
_RAISED = re.compile(
    r"(?P<type>[A-Za-z_]\w{0,80}(?:\.[A-Za-z_]\w{0,80}){0,12})"
    r"(?:\((?P<inner>[A-Za-z]\w{0,80})\))?(?::(?:\s(?P<text>.*))?)?$"
)
_NAMED_SO = (
    "Error", "Exception", "Exit", "Interrupt", "ExceptionGroup", "StopIteration", "Warning", "Failure",
    "Failed",
    "Empty", "Full", "timeout", "Timeout", "Expired", "NotFound", "Abort", "Aborted", "Cancelled", "error",
)  # fmt: skip
_LIBRARY = (
    "site-packages",
    "dist-packages",
    "/lib/python",
    "/lib64/python",
    "\\lib\\",
    "<frozen",
    "/python3.",
)
_PASSING = ("Empty", "StopIteration", "StopAsyncIteration", "Full", "GeneratorExit")
"""Exceptions by which libraries signal to themselves: one at the head of a chain explains nothing."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: the source file and its line."""

    file: str
    line: int

    @property
    def of_library(self) -> bool:
        """Whether it lies in Python itself, in an installed package or in no file at all."""
        return self.file.startswith("<") or any(part in self.file for part in _LIBRARY)


@dataclass(slots=True)
class RaisedException:
    """One exception with its frames, the outermost first. `type`: with its module, "" when it is cut off.

    `number`: the line of the log on which the exception stands, or the last one that is there."""

    type: str = ""
    text: str = ""
    frames: list[Frame] = field(default_factory=list)
    number: int | None = None

    @property
    def name(self) -> str:
        """The type without its module."""
        return self.type.rpartition(".")[2]

    @property
    def place(self) -> Frame | None:
        """The innermost frame of the user's code; of any code where there is none."""
        own = [frame for frame in self.frames if not frame.of_library]
        frames = own or self.frames
        return frames[-1] if frames else None


@dataclass(slots=True)
class Traceback:
    """A chain of exceptions, in the order of the log. `started`: the line of its headline."""

    started: int | None
    chain: list[RaisedException] = field(default_factory=list)
    fatal: str = ""  # what faulthandler calls a fatal error; "" for an exception

    @property
    def first(self) -> RaisedException:
        """The exception from which the others of the chain followed."""
        copied = [
            at for at, each in enumerate(self.chain[:-1]) if any(words in each.text for words in _COPYING)
        ]
        chain = self.chain[copied[-1] + 1 :] if copied else self.chain
        telling = [each for each in chain if each.name not in _PASSING]
        return (telling or chain or self.chain)[0]


class Tracebacks:
    """The tracebacks of one stream of lines. `finished` holds those that are complete, until taken."""

    def __init__(self) -> None:
        self.finished: list[Traceback] = []
        self._open: Traceback | None = None
        self._raised = RaisedException()
        self._ended = False  # the exception's line was there; its message, or a chain, may follow
        self._joins = False  # another exception of the chain is announced
        self._stamped = False  # the exception's line had a time of its own
        self._lines = self._stray = self._message = 0

    def take(self, number: int | None, text: str, *, stamped: bool) -> bool:
        """Whether this line belongs to a traceback. Every line of the stream is to be given, in order.

        `stamped`: it began with a time: then the next line with one is no part of a message."""
        bare = text.lstrip(" |+-") if text[:1] in " |+" else text
        if _HEAD in bare:
            self._begin(number)
            return True
        if bare.startswith(_FATAL):
            self._close()
            self._open, self._raised = Traceback(number, fatal=bare[len(_FATAL) :].strip()), RaisedException()
            self._ended, self._lines, self._stray = False, 0, 0
            return True
        if self._open is None:
            return self._implied(number, text)
        self._lines += 1
        if self._lines > policy.BLOCK_LINES:
            self._close()
            return False
        if self._ended:
            return self._after(text, bare, stamped=stamped)
        self._stamped = stamped
        return self._within(number, text, bare)

    @property
    def open(self) -> Traceback | None:
        """The traceback that is being read."""
        return self._open

    def close(self) -> None:
        """Note that the stream ends: what is open is cut off."""
        self._close()

    def _begin(self, number: int | None) -> None:
        chained = self._open is not None and self._ended and not self._open.fatal and self._joins
        if not chained:
            self._close()
            self._open = Traceback(number)
        elif len(self._open.chain) < policy.CHAIN_MAX:  # type: ignore[union-attr]
            self._open.chain.append(self._raised)  # type: ignore[union-attr]
        self._raised, self._ended, self._joins = RaisedException(number=number), False, False
        self._lines = self._stray = 0

    def _implied(self, number: int | None, text: str) -> bool:
        """A frame without a headline: the compiler's message about a source that is no Python."""
        found = _FRAME.match(text) if text[:60].lstrip().startswith('File "') else None
        if found is None:
            return False
        self._open, self._raised = Traceback(number), RaisedException(number=number)
        self._raised.frames.append(Frame(found["file"], int(found["line"])))
        self._ended, self._joins, self._lines, self._stray = False, False, 0, 0
        return True

    def _within(self, number: int | None, text: str, bare: str) -> bool:
        if (found := _FRAME.match(text) or _BOXED.match(text)) is not None:
            if len(self._raised.frames) < policy.FRAMES_KEPT:
                self._raised.frames.append(Frame(found["file"], int(found["line"])))
            self._stray = 0
            return True
        if self._open is not None and self._open.fatal:
            return self._of_fatal(text)
        if _is_code(text, bare):
            return True
        if (raised := _raised(bare, within=bool(self._raised.frames))) is not None:
            self._raised.type, self._raised.text, self._raised.number = *raised, number
            self._ended, self._joins, self._message = True, bool(_copying(self._raised.text)), 0
            return True
        self._stray += 1
        if self._stray > policy.STRAY_LINES:
            self._close()
        return False

    def _of_fatal(self, text: str) -> bool:
        if "thread 0x" in text.lower() or not text.strip() or text.startswith("  "):
            return True
        self._close()
        return False

    def _after(self, text: str, bare: str, *, stamped: bool) -> bool:
        """Lines after the exception's: the rest of its message, the words of a chain, or something else."""
        if any(words in bare for words in _CHAINED):
            self._joins = True
            return True
        if not text.strip():
            return True
        if self._joins and any(words in text for words in _COPYING):
            return True
        self._message += 1
        if (
            not stamped
            and self._message <= policy.MESSAGE_LINES
            and len(self._raised.text) < policy.MESSAGE_CHARS
        ):
            self._raised.text += "\n" + bare[: policy.MESSAGE_CHARS]
            self._joins = self._joins or _copying(bare)
        if self._message > policy.MESSAGE_LINES and not self._joins:
            self._close()
        return False  # it may be a line of its own as well

    def _close(self) -> None:
        if self._open is not None:
            if self._raised.frames or self._raised.type:
                self._open.chain.append(self._raised)
            if self._open.chain or self._open.fatal:
                if self._open.fatal:
                    self._raised.frames.reverse()  # faulthandler writes the innermost first
                self.finished.append(self._open)
        self._open, self._ended, self._joins = None, False, False


def _is_code(text: str, bare: str) -> bool:
    """Whether a line within a traceback is empty, a line of source, or a part of a box."""
    if not text.strip() or text[0] in _BOX:
        return True
    return text[0] in " \t" and "|" not in text[: len(text) - len(bare)]


def bare_exception(text: str) -> tuple[str, str] | None:
    """Type and message when a line reads like the last one of a traceback whose head is missing."""
    return _raised(text) if text[:1].isalpha() else None


def _raised(text: str, *, within: bool = False) -> tuple[str, str] | None:
    """Type and message of the line that ends a traceback; None for another line.

    `within`: frames precede it."""
    head = text[: policy.MESSAGE_CHARS]
    found = _RAISED.match(head)
    if found is None:
        return None
    name = found["type"].rpartition(".")[2]
    camel = name[:1].isupper() and sum(each.isupper() for each in name) > 1 and not name.isupper()
    if not (name.endswith(_NAMED_SO) or (camel and (within or "." in found["type"]))):
        return None
    return found["inner"] or found["type"], found["text"] or ""


def _copying(text: str) -> bool:
    return any(words in text for words in _COPYING)
