"""What a training script imports: `from agent.sdk import Session`. torch and the standard library only."""

from agent.sdk.errors import SessionError
from agent.sdk.session import Session

__all__ = ["Session", "SessionError"]
