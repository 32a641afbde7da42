"""List the causes that a log can name: whether each is a root or a consequence, and whether a restart
helps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CausalRole(StrEnum):
    """What a failure can be among those of a job."""

    ROOT = "root"  # it needs no other failure
    EITHER = "either"  # a root when no other rank has one, otherwise a consequence: a network error, a kill
    CASCADE = "cascade"  # it follows from the failure of another rank, or from the launcher's order to end


class Recurrence(StrEnum):
    """Whether a failure comes again after a restart that changes nothing."""

    CERTAIN = "certain"  # nothing of what caused it changes by itself
    LIKELY = "likely"  # the script raised it: the same code meets the same data
    ALIKE = "alike"  # when most ranks failed alike, or none trained before; otherwise it passes
    PASSES = "passes"  # what caused it is outside of the job


@dataclass(frozen=True, slots=True)
class LoggedCause:
    """One cause. `means`: a clause for sentences; `advice`: what to do."""

    code: str
    role: CausalRole
    recurs: Recurrence
    means: str
    advice: str


_R, _E, _C = CausalRole.ROOT, CausalRole.EITHER, CausalRole.CASCADE
_CERTAIN, _LIKELY, _ALIKE, _PASSES = Recurrence

_DEVICE = "Run on another device: cordon the node, and have the device examined before it is used again."
_SCRIPT = "Look at the named line of the script."
_ROOM = "Free space, or write elsewhere, before the next start."
_PEER = "Look at the rank that failed first; nothing is to be done here."
_LINK = "Look at the links and switches between the named node and its peers."

_ALL = (
    LoggedCause("import_error", _R, _CERTAIN, "a module cannot be imported", "Install what is missing."),
    LoggedCause("syntax_error", _R, _CERTAIN, "the source is no valid Python", _SCRIPT),
    LoggedCause("bad_arguments", _R, _CERTAIN, "the command line is refused", "Correct the arguments."),
    LoggedCause("file_not_found", _R, _CERTAIN, "a file is missing", "Correct the path, or bring the file."),
    LoggedCause("permission_denied", _R, _CERTAIN, "access is refused", "Correct owner or mode of the path."),
    LoggedCause("wrong_build", _R, _CERTAIN, "the software was not built for this device or driver",
                "Install a build for this device, or a newer driver."),
    LoggedCause("damaged_file", _R, _CERTAIN, "a file is damaged, or not whole", "Bring the file again."),
    LoggedCause("disk_full", _R, _CERTAIN, "the disk is full", _ROOM),
    LoggedCause("quota_exceeded", _R, _CERTAIN, "a storage quota is used up", _ROOM),
    LoggedCause("code_error", _R, _CERTAIN, "the script has a mistake", _SCRIPT),
    LoggedCause("too_many_open_files", _R, _LIKELY, "no file can be opened any more",
                "Raise the limit of open files, or find what does not close them."),
    LoggedCause("shared_memory_full", _R, _LIKELY, "shared memory is full",
                "Give the container a larger /dev/shm, or the loader fewer workers."),
    LoggedCause("assertion", _R, _LIKELY, "an assertion failed", _SCRIPT),
    LoggedCause("nan", _R, _LIKELY, "the script met a number that is not finite",
                "Lower the learning rate, or leave out the data of this step."),
    LoggedCause("device_assert", _R, _LIKELY, "a check inside a CUDA kernel failed",
                "Look for an index out of range (labels, tokens); CUDA_LAUNCH_BLOCKING=1 shows the line."),
    LoggedCause("exception", _R, _LIKELY, "the script raised an exception", _SCRIPT),
    LoggedCause("desynchronized", _R, _LIKELY, "ranks called different collectives",
                "Look for a branch that only some ranks take."),
    LoggedCause("cuda_out_of_memory", _R, _ALIKE, "the device's memory is used up",
                "Use a smaller batch, or shard more; one rank alone may share its device with others."),
    LoggedCause("host_out_of_memory", _R, _ALIKE, "the host's memory is used up",
                "Give the job more memory, or the loader fewer workers."),
    LoggedCause("oom_killed", _R, _ALIKE, "the kernel killed it for want of memory",
                "Give the container more memory, or find what grows."),
    LoggedCause("segfault", _R, _ALIKE, "native code crashed",
                "Look at the last Python frames and at extensions."),
    LoggedCause("bus_error", _R, _ALIKE, "native code met a bus error",
                "Look at /dev/shm and at mapped files."),
    LoggedCause("aborted", _E, _ALIKE, "native code ended the process", "Read the lines before it."),
    LoggedCause("illegal_memory_access", _R, _ALIKE, "a CUDA kernel touched foreign memory",
                "Look for a faulty kernel; one device alone may be damaged."),
    LoggedCause("cuda_error", _R, _ALIKE, "CUDA reports an error", _DEVICE),
    LoggedCause("gpu_program_fault", _R, _ALIKE, "a kernel of the job broke on the GPU (Xid)",
                "Look for a faulty kernel; the same device again and again is damaged."),
    LoggedCause("ecc_error", _R, _PASSES, "GPU memory is damaged", _DEVICE),
    LoggedCause("gpu_lost", _R, _PASSES, "the GPU fell off the bus", _DEVICE),
    LoggedCause("nvlink_error", _R, _PASSES, "NVLink failed", _DEVICE),
    LoggedCause("gpu_fault", _R, _PASSES, "the GPU failed", _DEVICE),
    LoggedCause("machine_check", _R, _PASSES, "the host's hardware failed", "Drain the node."),
    LoggedCause("link_down", _R, _PASSES, "a network link went down", _LINK),
    LoggedCause("storage_lost", _R, _PASSES, "the file system did not answer", "Look at the file system."),
    LoggedCause("io_error", _R, _PASSES, "reading or writing failed", "Look at the disk or file system."),
    LoggedCause("data_source_lost", _R, _PASSES, "a remote source of data did not answer",
                "Look whether the service is up."),
    LoggedCause("preempted", _R, _PASSES, "the machine was taken away", "Start again on other machines."),
    LoggedCause("evicted", _R, _PASSES, "the node evicted it for want of a resource",
                "Request the resource that the message names, or use another node."),
    LoggedCause("time_limit", _R, _PASSES, "the scheduler's time limit was reached", "Submit it again."),
    LoggedCause("node_failure", _R, _PASSES, "the scheduler lost a node", "Start again without that node."),
    LoggedCause("cancelled", _E, _PASSES, "somebody ended the job", "Ask who, and why."),
    LoggedCause("port_in_use", _R, _PASSES, "the port is taken", "Choose another port, or end who holds it."),
    LoggedCause("killed", _E, _PASSES, "the process was killed, or vanished with its node",
                "Look into the kernel's log of its node for the OOM killer."),
    LoggedCause("network_error", _E, _PASSES, "the network failed", _LINK),
    LoggedCause("rendezvous_timeout", _E, _PASSES, "ranks did not find each other in time", _LINK),
    LoggedCause("collective_timeout", _C, _PASSES, "a collective waited too long for others", _PEER),
    LoggedCause("connection_lost", _C, _PASSES, "the connection to another rank broke", _PEER),
    LoggedCause("nccl_error", _C, _PASSES, "NCCL reports that another rank is gone", _PEER),
    LoggedCause("store_lost", _C, _PASSES, "the store of the rendezvous is gone", _PEER),
    LoggedCause("terminated", _C, _PASSES, "the launcher ended it", _PEER),
    LoggedCause("child_failed", _C, _PASSES, "the launcher reports a failed process", _PEER),
    LoggedCause("hung", _E, _PASSES, "it stopped without a word (hung, or killed), and the others waited",
                "Take its stacks (py-spy dump) when it happens again."),
    LoggedCause("silent", _C, _PASSES, "its log ends without a word",
                "Look into the kernel's log of its node."),
    LoggedCause("unknown", _E, _PASSES, "nothing in the logs says it", "Look at the ends of all logs."),
)  # fmt: skip
CAUSES = {each.code: each for each in _ALL}
"""Every cause, by its code. A code that is not here is a mistake of ours: KeyError."""

HARDWARE = ("ecc_error", "gpu_lost", "nvlink_error", "gpu_fault", "machine_check", "link_down")
"""Causes for which the node is not to be used again before it has been examined."""
