"""List the words by which log lines name a cause, each with the source that writes them.

The first row that fits counts, so the particular stands before the general. All `words` of a row must be in
the line (in lower case), none of `_HARMLESS`. There are no patterns: a search for fixed words takes time in
proportion to the line, whatever the line is."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.analysis.failure_logs.causes import CAUSES
from controlplane.core.failures.hardware_words import HARDWARE

SOURCES = {
    "python": "the Python documentation, built-in exceptions; CPython, Objects/exceptions.c",
    "faulthandler": "CPython, Modules/faulthandler.c and Python/pylifecycle.c",
    "argparse": "CPython, Lib/argparse.py, ArgumentParser.error",
    "errno": "glibc, strerror; errno(3)",
    "shell": "bash and glibc, strsignal",
    "elastic": "torch/distributed/elastic/agent/server/api.py and multiprocessing/api.py",
    "elastic errors": "torch/distributed/elastic/multiprocessing/errors/__init__.py",
    "nccl group": "torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp and NCCLUtils.hpp",
    "c10d store": "torch/csrc/distributed/c10d/TCPStore.cpp, socket.cpp and Utils.hpp",
    "c10d gloo": "torch/csrc/distributed/c10d/ProcessGroupGloo.cpp",
    "gloo": "gloo/transport/tcp/pair.cc and unbound_buffer.cc",
    "nccl": "NCCL, src/transport/net_ib.cc, src/misc/socket.cc, user guide (ncclResult_t)",
    "ofi": "aws-ofi-nccl, src/nccl_ofi_rdma.cpp; libfabric, fi_errno(3)",
    "ucx": "UCX, src/ucs/debug/debug.c",
    "cuda": "CUDA runtime, cudaGetErrorString; c10/cuda/CUDAException.cpp",
    "allocator": "c10/cuda/CUDACachingAllocator.cpp",
    "cpu allocator": "c10/core/impl/alloc_cpu.cpp",
    "loader": "torch/utils/data/_utils/signal_handling.py, torch/csrc/DataLoader.cpp",
    "serialization": "caffe2/serialize/inline_container.cc",
    "xid": "NVIDIA, XID errors (docs.nvidia.com/deploy/xid-errors)",
    "nvrm": "NVIDIA, open-gpu-kernel-modules, src/common/sdk/nvidia/inc/nvstatuscodes.h",
    "oom_kill.c": "Linux, mm/oom_kill.c",
    "cgroup": "Linux, memory.events (cgroup v2) and memory.oom_control (v1): oom_kill",
    "mce": "Linux, arch/x86/kernel/cpu/mce; drivers/edac",
    "block": "Linux, block/blk-core.c, fs/ext4/super.c, fs/xfs",
    "lustre": "Lustre, lustre/ptlrpc and lustre/llite; Amazon FSx for Lustre, troubleshooting",
    "nfs": "Linux, net/sunrpc/clnt.c",
    "mlx5": "Linux, drivers/net/ethernet/mellanox/mlx5; drivers/infiniband",
    "slurm": "Slurm, src/slurmd/slurmstepd and src/srun",
    "kubernetes": "Kubernetes, pkg/kubelet (container status reasons)",
    "cloud": "AWS spot interruption notices, GCE preemption notices",
    "ray": "Ray, src/ray/raylet/node_manager.cc and python/ray/exceptions.py",
    "examples": "torchvision and timm, reference training scripts",
    "ld.so": "glibc, elf/dl-lookup.c and elf/dl-version.c",
    "safetensors": "safetensors, safetensors/src/tensor.rs (SafeTensorError)",
    "s3": "Amazon S3, error responses (SlowDown)",
    "requests": "urllib3, requests and botocore, exceptions",
}
"""Where the words of each source come from."""


@dataclass(frozen=True, slots=True)
class Wording:
    """One row. `types`: it is about exceptions of these types only; "*": of any type; (): about any line.

    `loud`: it counts in a line that is marked as a warning too."""

    cause: str
    source: str
    words: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    loud: bool = False


def _rows(cause: str, source: str, *texts: str, types: str = "", loud: bool = False) -> tuple[Wording, ...]:
    """One row for each text; " & " joins words that must all be there."""
    named = tuple(types.split())
    return tuple(
        Wording(cause, source, tuple(t.split(" & ")) if t else (), named, loud) for t in texts or ("",)
    )


WORDINGS = (
    # What another rank's end does to this one comes first: it may be wrapped in any exception.
    *_rows("child_failed", "elastic errors", "", types="ChildFailedError ProcessFailure"),
    *_rows("terminated", "elastic", "", types="SignalException"),
    *_rows("connection_lost", "python", "",
           types="ConnectionResetError BrokenPipeError ConnectionAbortedError EOFError IncompleteReadError"),
    *_rows("connection_lost", "gloo", "connection closed by peer", "connection reset by peer",
           "read error [ & pair.cc", "write error [ & pair.cc", "pair.cc & broken pipe",
           "pair.cc & connection refused",
           "pair.cc & timed out", "gloo & socketexception", loud=True),
    *_rows("rendezvous_timeout", "gloo", "connectfullmesh failed", "pair.cc & connect timeout", loud=True),
    *_rows("collective_timeout", "gloo", "timed out waiting & for recv operation",
           "timed out waiting & for send operation", "application timeout caused pair closure", loud=True),
    *_rows("collective_timeout", "c10d gloo", "failed to pass monitoredbarrier",
           "monitoredbarrier & timed out",
           "timed out in monitoredbarrier", loud=True),
    *_rows("collective_timeout", "nccl group", "watchdog caught collective operation timeout",
           "collective operation timeout: worknccl", "watchdog got stuck", "heartbeat monitor timed out",
           "received a dump signal", "observed flight recorder dump signal", loud=True),
    *_rows("wrong_build", "cuda", "driver version is insufficient for cuda", "cudaerrorinsufficientdriver",
           "no kernel image is available for execution", "cudaerrornokernelimagefordevice"),
    *_rows("illegal_memory_access", "cuda", "an illegal memory access was encountered",
           "cudaerrorillegaladdress",
           "misaligned address", "illegal instruction was encountered", "an illegal instruction"),
    *_rows("device_assert", "cuda", "device-side assert triggered", "assertion & failed. & block: [",
           "indexselectlargeindex", "srcindex < srcselectdimsize"),
    *_rows("ecc_error", "cuda", "uncorrectable ecc error", "cuda_error_ecc_uncorrectable",
           "double bit ecc error", "uncorrectable nvlink error & ecc", loud=True),
    *_rows("nvlink_error", "cuda", "uncorrectable nvlink error"),
    *_rows("gpu_lost", "xid", "gpu has fallen off the bus", "fallen off the bus", "gpu is lost",
           "unable to determine the device handle", "cuda_error_device_unavailable", loud=True),
    *_rows("gpu_fault", "nvrm", "nvrm: & nv_err_reset_required", loud=True),
    *_rows("cuda_out_of_memory", "allocator", "cuda out of memory", "cuda error: out of memory",
           "hip out of memory", "cuda_error_out_of_memory", "cublas_status_alloc_failed"),
    *_rows("cuda_out_of_memory", "nccl", "cuda failure 'out of memory'", "failed to cuda calloc", loud=True),
    *_rows("cuda_error", "nccl", "unhandled cuda error", "nccl warn & cuda failure", loud=True),
    *_rows("cuda_out_of_memory", "allocator", types="OutOfMemoryError"),
    *_rows("collective_timeout", "c10d store", "store based barrier", "store_based_barrier",
           "barrier timed out", "barrier timeout", "timeout & in barrier", loud=True),
    *_rows("cuda_error", "cuda", "unspecified launch failure", "cuda error: unknown error",
           "cuda error: the launch timed out", "cublas_status_execution_failed",
           "cudnn_status_execution_failed",
           "cudnn_status_internal_error", "cublas_status_internal_error", "cuda error: hardware stack error",
           "cuda error: no cuda-capable device", "cuda error: all cuda-capable devices are busy",
           "cuda error: invalid device ordinal",
           "device(s) is/are busy or unavailable", "cuda initialization & error",
           "system not yet initialized"),
    *_rows("desynchronized", "nccl group", "detected mismatch between collectives",
           "collectives are not in sync", "mismatch between collective operations"),
    *_rows("collective_timeout", "nccl group", "some nccl operations have failed or timed out",
           "to avoid data inconsistency, we are taking the entire process down", loud=True),
    *_rows("nccl_error", "nccl group", "ncclremoteerror",
           "remote process exited or there was a network error",
           "nccl communicator was aborted", "ncclinternalerror", "process group watchdog thread terminated",
           "nccl watchdog thread terminated", "detected by watchdog at work", loud=True),
    *_rows("nccl_error", "nccl", "connection closed by remote peer", "proxy call to rank & failed",
           "socket recv failed", "socket send failed", loud=True),
    *_rows("network_error", "nccl", "net/ib & got completion from peer", "net/ib & got async event",
           "net/ib & call to ibv & failed", "nccl warn call to ibv_ & failed",
           "communicator encountered a fatal error & ncclib", "net/ib : & local work queue error",
           "nccl warn & no route to host",
           "nccl warn & connection timed out", "ncclsystemerror", "unhandled system error", loud=True),
    *_rows("network_error", "ofi", "net/ofi & completed with error", "net/ofi & rc: & error:",
           "efa_rdm & handle_error", "efa & unreachable remote", "efa & unresponsive", loud=True),
    *_rows("network_error", "ucx", "ucx & error & transport retry count exceeded", "ucx  error & timeout"),
    *_rows("connection_lost", "gloo", "gloo/transport/tcp/", loud=True),
    *_rows("network_error", "errno", "no route to host", "network is unreachable", "network is down",
           "host is down",
           "temporary failure in name resolution", "name or service not known"),
    *_rows("store_lost", "c10d store", "recvvalue failed", "sendbytes failed", "recvbytes failed",
           "connection was likely closed. did the remote server shutdown or crash",
           "failed to check the \"should dump\" flag", "broken pipe & tcpstore",
           "the client socket has failed to connect",
           "store->get('", loud=True),
    *_rows("rendezvous_timeout", "c10d store", "timed out after & clients joined",
           "client socket has timed out", "connect() timed out. original timeout",
           "rendezvoustimeouterror", "rendezvousclosederror", "rendezvousconnectionerror"),
    *_rows("rendezvous_timeout", "elastic", types="RendezvousTimeoutError RendezvousClosedError "
           "RendezvousConnectionError RendezvousGracefulExitError"),
    *_rows("store_lost", "c10d store", "socket timeout", "wait timeout after", "diststoreerror",
           "connection reset by peer & store", loud=True),
    *_rows("connection_lost", "errno", "transport endpoint is not connected", "broken pipe", "[errno 104]",
           "[errno 32]",
           "connection refused & distnetworkerror", "connection closed by remote host"),
    *_rows("store_lost", "c10d store", types="DistStoreError DistNetworkError"),
    *_rows("collective_timeout", "nccl group", types="DistBackendError"),
    *_rows("child_failed", "elastic errors", "childfailederror"),
    *_rows("terminated", "elastic", "closing signal sig", "via signal sig", "got signal: ", " death signal",
           "signal 15 (sigterm) received", "closing signal 15", loud=True),
    # What needs no other failure.
    *_rows("preempted", "cloud", "preempt & sigterm", "spot interruption", "instance-action & terminate",
           "instance interruption", "will be preempted", "has been preempted", "was preempted",
           "preemption notice",
           "received preemption", loud=True),
    *_rows("time_limit", "slurm", "due to time limit", loud=True),
    *_rows("preempted", "slurm", "due to preemption", loud=True),
    *_rows("node_failure", "slurm", "due to node failure", "node failure on", "nodefail", loud=True),
    *_rows("oom_killed", "slurm", "oom_kill event", "oom-kill event", "have been oom killed", "oom killed",
           loud=True),
    *_rows("cancelled", "slurm", "*** step & cancelled at", "*** job & cancelled at", "job step aborted",
           loud=True),
    *_rows("terminated", "shell", "received sigterm", "caught sigterm", "sigterm received", loud=True),
    *_rows("oom_killed", "oom_kill.c", "out of memory: kill", "memory cgroup out of memory",
           "oom-kill:constraint",
           "invoked oom-killer", "oom_reaper: reaped process", loud=True),
    *_rows("oom_killed", "kubernetes", "oomkilled", loud=True),
    *_rows("evicted", "kubernetes", "the node was low on resource", loud=True),
    *_rows("shared_memory_full", "loader", "killed by signal: bus error", "insufficient shared memory",
           "no space left on device & /dev/shm", "unable to write to file </torch_", "out of shared memory"),
    *_rows("oom_killed", "loader", "dataloader worker & killed by signal: killed"),
    *_rows("segfault", "loader", "dataloader worker & killed by signal: segmentation fault"),
    *_rows("machine_check", "mce", "mce: & hardware error", "machine check exception", "edac & ue ",
           loud=True),
    *_rows("link_down", "mlx5", "mlx5 & link down", "link_down", "port & state changed to down",
           "nic link is down", "link is down", loud=True),
    *_rows("storage_lost", "lustre", "lustreerror & failed", "lustre & was evicted",
           "lustre & connection to & was lost",
           "cannot send after transport endpoint shutdown", loud=True),
    *_rows("storage_lost", "nfs", "nfs: server & not responding", loud=True),
    *_rows("storage_lost", "errno", "stale file handle", "stale nfs file handle"),
    *_rows("quota_exceeded", "errno", "disk quota exceeded", "[errno 122]", "quota exceeded & storage"),
    *_rows("disk_full", "errno", "no space left on device", "[errno 28]", "enospc"),
    *_rows("disk_full", "serialization", "pytorchstreamwriter failed writing"),
    *_rows("io_error", "block", "i/o error, dev", "buffer i/o error", "remounting filesystem read-only",
           "ext4-fs error", "xfs & metadata i/o error", loud=True),
    *_rows("io_error", "errno", "input/output error", "[errno 5]", "read-only file system",
           "remote i/o error"),
    *_rows("data_source_lost", "s3", "reduce your request rate"),
    *_rows("import_error", "ld.so", "not defined in file & with link time reference",
           "version `glibc & not found"),
    *_rows("damaged_file", "safetensors", "error while deserializing header"),
    *_rows("too_many_open_files", "errno", "too many open files", "[errno 24]"),
    *_rows("port_in_use", "errno", "address already in use", "eaddrinuse"),
    *_rows("host_out_of_memory", "cpu allocator", "defaultcpuallocator: can't allocate memory",
           "cannot allocate memory", "std::bad_alloc", "not enough memory: you tried to allocate"),
    *_rows("file_not_found", "python", "can't open file '"),
    *_rows("bad_arguments", "argparse", ": error: unrecognized arguments",
           ": error: the following arguments are required",
           ": error: argument ", "could not override & hydra", "error: no such option",
           "error: missing option"),
    *_rows("killed", "ray", "a worker died or was killed", "its worker process has died", loud=True),
    *_rows("segfault", "faulthandler", "fatal python error: segmentation fault"),
    *_rows("segfault", "shell", "segmentation fault", "sigsegv", "caught signal 11", loud=True),
    *_rows("bus_error", "shell", "bus error", "sigbus", "caught signal 7", loud=True),
    *_rows("killed", "shell", "sigkill", "signal 9", "exitcode: -9", "return code = -9", loud=True),
    *_rows("permission_denied", "errno", "permission denied", types="PermissionError OSError RuntimeError"),
    *(row for each in HARDWARE for row in _rows(each.cause, each.source, *each.words, types="*")),
    # Exceptions by type.
    *_rows("import_error", "python", types="ImportError ModuleNotFoundError"),
    *_rows("syntax_error", "python", types="SyntaxError IndentationError TabError"),
    *_rows("permission_denied", "python", types="PermissionError"),
    *_rows("file_not_found", "python", types="FileNotFoundError NotADirectoryError IsADirectoryError"),
    *_rows("host_out_of_memory", "python", types="MemoryError"),
    *_rows("nan", "examples", "loss is nan, stopping", "loss is inf, stopping", "nan detected, aborting"),
    *_rows("nan", "python", "nan", "not finite", "non-finite", "nonfinite", "inf or nan", "infinite",
           "overflow",
           types="*"),
    *_rows("nan", "python", types="FloatingPointError OverflowError"),
    *_rows("assertion", "python", types="AssertionError"),
    *_rows("data_source_lost", "requests",
           types="HTTPError ConnectTimeout ReadTimeout ReadTimeoutError URLError "
           "EndpointConnectionError ClientError MaxRetryError NewConnectionError ProtocolError SSLError "
           "ChunkedEncodingError ConnectTimeoutError ServiceUnavailable "
           "HfHubHTTPError"),
    *_rows("network_error", "python", types="ConnectionRefusedError"),
    *_rows("connection_lost", "python", types="ConnectionError TimeoutError timeout gaierror"),
    *_rows("cancelled", "python", types="KeyboardInterrupt"),
    *_rows("code_error", "python",
           types="TypeError NameError AttributeError UnboundLocalError RecursionError"),
    *_rows("bad_arguments", "argparse", types="ArgumentError ConfigAttributeError MissingMandatoryValue"),
    *_rows("aborted", "faulthandler", "fatal python error: aborted", "terminate called after throwing",
           "aborted (core dumped)",
           "sigabrt", "double free or corruption", "malloc(): ", "free(): invalid", "munmap_chunk(): invalid",
           "corrupted size vs. prev_size"),
    *_rows("exception", "python", types="*"),
)  # fmt: skip

XIDS = {
    13: "gpu_program_fault", 31: "gpu_program_fault", 43: "gpu_program_fault", 45: "terminated",
    48: "ecc_error", 63: "ecc_error", 64: "ecc_error", 92: "ecc_error", 94: "ecc_error", 95: "ecc_error",
    140: "ecc_error", 171: "ecc_error", 172: "ecc_error",
    74: "nvlink_error", 144: "nvlink_error", 145: "nvlink_error", 146: "nvlink_error", 147: "nvlink_error",
    148: "nvlink_error", 149: "nvlink_error", 150: "nvlink_error", 79: "gpu_lost",
}  # fmt: skip
"""The cause that each Xid stands for (source: `xid`); `gpu_fault` for any other number. 45 (channels are
removed) follows from the end of a process or from another Xid."""

TRIED_AGAIN = (
    "retrying", "will retry", "retry in", "retry #", "retries left", "recovered", "skipped", "skipping",
           "ignored",
    "ignoring", "falling back", "fallback", "re-attempt", "trying again", "attempt 1/", "attempt 2/",
)  # fmt: skip
"""Words that say that somebody got over it: such a line is no failure, whatever else it says."""
HARMLESS = (
    "userwarning", "futurewarning", "deprecat", "no error", "0 errors", "errors: 0", "errors=0", "error=0",
    "error: 0", "error count: 0", "(success)", "not an error", "can be ignored", "harmless", "if you see",
    "handler installed", "handlers installed", "corrected error", "errors corrected",
)  # fmt: skip
"""Words that say that a line is no failure: a count of none, a handler, or advice."""
QUIET = ("warning", "warn", "info", "debug", "trace", "notice")
"""Levels of lines that name a failure only where the row says so."""

for _row in WORDINGS:
    CAUSES[_row.cause], SOURCES[_row.source]  # an absent entry is an error
