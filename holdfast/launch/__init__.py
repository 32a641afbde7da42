"""Start the processes of a node: warm interpreters, the zygote that forks them, and what Linux offers for
both.

Standard library and holdfast.ipc.frames only."""
