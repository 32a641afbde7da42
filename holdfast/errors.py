"""Define the errors that the SDK raises, to scripts and within itself."""

from __future__ import annotations


class SessionError(RuntimeError):
    """The script used the session in a way that cannot work, or its state cannot be kept. The message names
    the fix."""


class AwayError(SessionError):
    """Something the session needs is missing now but may come back: trying again can help."""


class StateError(SessionError):
    """A tracked object's `state_dict` fails, or its state cannot be kept."""


class RestoreError(SessionError):
    """The state of another rank or of a snapshot does not fit what this rank tracks."""


class Interrupted(BaseException):
    """The generation is broken: unwinds the script's loop up to the elastic function.

    It is a BaseException, so that a script's `except Exception` does not catch it."""


class CollectiveFailed(Interrupted):
    """This rank found its process group broken before its agent reported it."""


def raised(error: BaseException) -> str:
    """What was raised, and by which line of which module, for one line of a log or a report."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    place = "" if at is None else f" (line {at.tb_lineno} of {at.tb_frame.f_globals.get('__name__')})"
    return f"{type(error).__name__}: {error}{place}"
