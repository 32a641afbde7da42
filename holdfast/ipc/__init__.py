"""Connect ranks, launcher and agent of one node: frames, messages, progress page, arena, shared memory.

Standard library only."""
