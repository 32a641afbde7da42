"""Start the processes of a node: the launcher, and the zygote that forks warm interpreters for it.

Standard library, holdfast.ipc, holdfast.folders, holdfast.removal and holdfast.logs only."""
