"""Define the errors that the SDK raises, for users and within itself."""

from __future__ import annotations


class SessionError(RuntimeError):
    """The session was used in an impossible way, or its state cannot be kept. Names the fix."""


class AwayError(SessionError):
    """What the session needs is not to be had now: tried again, it may be."""


class StateError(SessionError):
    """A tracked object does not give its state, or one that cannot be kept."""


class RestoreError(SessionError):
    """State of another rank or of a snapshot does not fit what this rank tracks."""


class Interrupted(BaseException):
    """The generation is broken: leave the user's loop. Never seen by users' `except Exception`."""


class CollectiveFailed(Interrupted):
    """This rank found the group broken before its agent reported it."""
