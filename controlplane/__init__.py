"""Holdfast's control plane: a coordinator that keeps PyTorch jobs training through failures."""

__version__ = "0.1.0"
