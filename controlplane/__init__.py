"""Holdfast's control plane: a coordinator that keeps PyTorch jobs training through failures."""
