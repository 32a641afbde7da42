"""Hold the texts of made-up logs: how ranks end by themselves, how they end after another one, and noise.

The texts follow logs that people have published in issues of PyTorch, NCCL and of training code, with names,
numbers and paths changed. Fields in braces are filled in by `failure_logs.py`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ending:
    """One way in which a rank ends by itself. `causes`: the codes that are right; `restart`: whether a restart
    helps when one rank alone ends so in the middle of the training; `spoken`: False for a rank that is killed
    without a word. `source`: whether a line of the script is to be named."""

    causes: tuple[str, ...]
    lines: tuple[str, ...]
    restart: bool
    source: bool = False
    spoken: bool = True


_AT = '  File "{script}", line {line}, in {function}'
_MAIN = (
    '  File "{script}", line 912, in <module>',
    "    main(parse())",
    '  File "{script}", line 640, in main',
)
_TORCH = "{site}/torch/nn/modules/module.py"


def _raised(*last: str, library: tuple[str, ...] = ()) -> tuple[str, ...]:
    body = ("    trainer.fit(model, loader)", _AT, "    {code}", *library)
    return ("Traceback (most recent call last):", *_MAIN, *body, *last)


_IN_TORCH = (
    f'  File "{_TORCH}", line 1773, in _wrapped_call_impl',
    "    return self._call_impl(*args, **kwargs)",
    "           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    f'  File "{_TORCH}", line 1784, in _call_impl',
    "    return forward_call(*args, **kwargs)",
)
_ASYNC = (
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.",
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
)

ENDINGS: dict[str, tuple[Ending, ...]] = {
    "exception": (
        Ending(("exception",), _raised("ValueError: sample {n} of shard 3 has {n} tokens, expected 2048"), False, True),
        Ending(("exception",), _raised("KeyError: 'attention_mask'"), False, True),
        Ending(("exception",), _raised("IndexError: list index out of range"), False, True),
        Ending(("exception",), _raised(
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x{n} and 4096x512)", library=_IN_TORCH,
        ), False, True),
        Ending(("exception",), _raised("mylib.errors.CorruptShard: checksum of shard-{n}.tar differs"), False, True),
        Ending(("exception",), _raised(
            "json.decoder.JSONDecodeError: Expecting ',' delimiter: line 1 column {n} (char {n})",
            library=('  File "/usr/lib/python3.10/json/decoder.py", line 353, in raw_decode',),
        ), False, True),
        Ending(("exception",), (
            *_raised("KeyError: {n}"), "",
            "During handling of the above exception, another exception occurred:", "",
            "Traceback (most recent call last):", '  File "{script}", line 101, in report', "    send(error)",
            "OSError: [Errno 107] Transport endpoint is not connected",
        ), False, True),
        Ending(("exception",), (
            "Traceback (most recent call last):", *_MAIN, "    for batch in loader:",
            '  File "{site}/torch/utils/data/dataloader.py", line 733, in __next__',
            "    data = self._next_data()",
            "ValueError: Caught ValueError in DataLoader worker process 2.",
            "Original Traceback (most recent call last):",
            '  File "{site}/torch/utils/data/_utils/worker.py", line 349, in _worker_loop',
            "    data = fetcher.fetch(index)", _AT, "    {code}",
            "ValueError: could not convert string to float: 'n/a'",
        ), False, True),
    ),
    "code_error": (
        Ending(("code_error",), _raised("TypeError: unsupported operand type(s) for +: 'NoneType' and 'int'"), False, True),
        Ending(("code_error",), _raised("AttributeError: 'Trainer' object has no attribute 'lr_sched'"), False, True),
        Ending(("code_error",), _raised("NameError: name 'los' is not defined. Did you mean: 'loss'?"), False, True),
        Ending(("code_error",), _raised(
            "UnboundLocalError: cannot access local variable 'mask' where it is not associated with a value"
        ), False, True),
    ),
    "assertion": (
        Ending(("assertion",), _raised("AssertionError: expected 8 heads, got {n}"), False, True),
        Ending(("assertion",), _raised("AssertionError"), False, True),
    ),
    "nan": (
        Ending(("nan",), _raised("ValueError: loss is nan at step {step}, stopping training"), False, True),
        Ending(("nan",), _raised("FloatingPointError: Loss became infinite or NaN at iteration={step}!"), False, True),
        Ending(("nan",), _raised("RuntimeError: Function 'LogSoftmaxBackward0' returned nan values in its 0th output."), False, True),
    ),
    "file_not_found": (
        Ending(("file_not_found",), _raised(
            "FileNotFoundError: [Errno 2] No such file or directory: '/data/tokens/shard_{n}.bin'"
        ), False, True),
    ),
    "permission": (
        Ending(("permission_denied",), _raised(
            "PermissionError: [Errno 13] Permission denied: '/ckpt/run7/step_{n}'"
        ), False, True),
    ),
    "disk_full": (
        Ending(("disk_full",), (
            *_raised("OSError: [Errno 28] No space left on device", library=(
                '  File "{site}/torch/serialization.py", line 650, in _save',
                "    zip_file.write_record(name, storage.data_ptr(), num_bytes)",
            )), "",
            "During handling of the above exception, another exception occurred:", "",
            "Traceback (most recent call last):", '  File "{script}", line 640, in main', "    save(model)",
            "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 7872 vs 7766",
        ), False, True),
        Ending(("disk_full",), _raised(
            "RuntimeError: [enforce fail at inline_container.cc:445] . PytorchStreamWriter failed writing file "
            "data/{n}: file write failed",
            library=('  File "{site}/torch/serialization.py", line 423, in save',),
        ), False, True),
    ),
    "quota": (
        Ending(("quota_exceeded",), _raised(
            "OSError: [Errno 122] Disk quota exceeded: '/data/u{n}/out/model.pt'"
        ), False, True),
    ),
    "cuda_oom": (
        Ending(("cuda_out_of_memory",), _raised(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.15 "
            "GiB of which 1.{n} GiB is free. Including non-PyTorch memory, this process has 77.82 GiB memory in use. If "
            "reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to "
            "avoid fragmentation.", library=_IN_TORCH,
        ), True, True),
        Ending(("cuda_out_of_memory",), _raised(
            "RuntimeError: CUDA out of memory. Tried to allocate 734.00 MiB (GPU 3; 31.75 GiB total capacity; 29.04 GiB "
            "already allocated)",
        ), True, True),
    ),
    "gpu": (
        Ending(("ecc_error",), (*_raised("RuntimeError: CUDA error: uncorrectable ECC error encountered"), *_ASYNC), True),
        Ending(("gpu_lost",), (
            "{syslog} {host} kernel: NVRM: Xid (PCI:0000:ae:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen "
            "off the bus.",
            "{syslog} {host} kernel: NVRM: GPU 0000:ae:00.0: GPU has fallen off the bus.",
        ), True),
        Ending(("ecc_error",), (
            "[{uptime}] NVRM: Xid (PCI:0000:65:00): 48, pid={pid}, name=python, DBE (double bit error) ECC Error",
            "[{uptime}] NVRM: Xid (PCI:0000:65:00): 63, pid={pid}, name=python, Row Remapper: New row marked for "
            "remapping, reset gpu to activate.",
        ), True),
        Ending(("ecc_error",), (
            "NVRM: Xid (PCI:0000:9b:00): 94, pid={pid}, name=python3, Ch 0000000e, errorString CTX SWITCH TIMEOUT, "
            "Contained: SM (0x1). RST: No, D-RST: No",
        ), True),
        Ending(("nvlink_error",), (
            "{syslog} {host} kernel: NVRM: Xid (PCI:0000:dc:00): 74, pid={pid}, name=python3, NVLink: fatal error "
            "detected on link 7(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
        ), True),
        Ending(("gpu_fault",), (
            "{syslog} {host} kernel: NVRM: Xid (PCI:0000:17:00): 119, pid={pid}, name=python, Timeout after 6s of "
            "waiting for RPC response from GPU0 GSP! Expected function 76",
        ), True),
        Ending(("cuda_error",), (*_raised("RuntimeError: CUDA error: unspecified launch failure"), *_ASYNC), True),
        Ending(("illegal_memory_access",), (
            "[E ProcessGroupNCCL.cpp:1182] [Rank {rank}] NCCL watchdog thread terminated with exception: CUDA error: an "
            "illegal memory access was encountered", *_ASYNC, "",
            "Exception raised from c10_cuda_check_implementation at ../c10/cuda/CUDAException.cpp:44 (most recent call "
            "first):",
            "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 (0x7fb91e781d87 in {site}/torch/lib/"
            "libc10.so)",
        ), True),
    ),
    "crash": (
        Ending(("segfault",), (
            "Fatal Python error: Segmentation fault", "", "Current thread 0x00007f5de5a3361d (most recent call first):",
            '  File "{script}", line {line} in {function}', '  File "{script}", line 640 in main',
        ), True),
        Ending(("segfault",), (
            "[{host}:{pid} :0:{pid}] Caught signal 11 (Segmentation fault: address not mapped to object at address (nil))",
            "==== backtrace (tid: {pid}) ====",
        ), True),
    ),
    "oom_killed": (
        Ending(("oom_killed",), (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=8{pid}.0. Some of the step tasks have been OOM Killed.",
        ), True),
        Ending(("oom_killed",), (
            "{syslog} {host} kernel: Memory cgroup out of memory: Killed process {pid} (python3) total-vm:98304512kB, "
            "anon-rss:65011712kB, file-rss:221184kB, shmem-rss:0kB, UID:1000 pgtables:131072kB oom_score_adj:0",
        ), True),
    ),
    "killed": (Ending(("killed", "oom_killed"), (), True, spoken=False),),
    "storage": (
        Ending(("storage_lost",), _raised("OSError: [Errno 116] Stale file handle: '/fsx/data/part-{n}.arrow'"), True, True),
        Ending(("storage_lost",), _raised(
            "OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/fsx/ckpt/{n}'"
        ), True, True),
        Ending(("io_error",), _raised("OSError: [Errno 5] Input/output error"), True, True),
    ),
    "network": (
        Ending(("link_down",), ("{syslog} {host} kernel: mlx5_core 0000:ab:00.0 eth2: Link down",), True),
    ),
    "preempted": (
        Ending(("time_limit",), (
            "slurmstepd: error: *** STEP {pid}.0 ON {host} CANCELLED AT 2026-11-23T14:31:32 DUE TO TIME LIMIT ***",
        ), True),
        Ending(("preempted",), (
            "slurmstepd: error: *** JOB {pid} ON {host} CANCELLED AT 2026-11-23T14:31:32 DUE TO PREEMPTION ***",
        ), True),
    ),
    "loader": (
        Ending(("shared_memory_full",), (
            "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
            "Traceback (most recent call last):",
            '  File "{site}/torch/utils/data/dataloader.py", line 1011, in _try_get_data',
            "    data = self._data_queue.get(timeout=timeout)",
            '  File "/usr/lib/python3.10/multiprocessing/queues.py", line 113, in get', "_queue.Empty", "",
            "The above exception was the direct cause of the following exception:", "", *_raised(
                "RuntimeError: DataLoader worker (pid(s) {pid}) exited unexpectedly"
            ),
        ), False),
    ),
}  # fmt: skip
"""Every kind of planted failure of one rank, with the ways in which it reads."""

AT_START: dict[str, tuple[Ending, ...]] = {
    "import": (
        Ending(("import_error",), _raised("ModuleNotFoundError: No module named 'flash_attn'"), False, True),
        Ending(("import_error",), _raised(
            "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory"
        ), False, True),
    ),
    "syntax": (
        Ending(("syntax_error",), (
            '  File "{script}", line {line}', "    def forward(self, x:", "               ^",
            "SyntaxError: '(' was never closed",
        ), False, True),
    ),
    "arguments": (
        Ending(("bad_arguments",), (
            "usage: train.py [-h] [--lr LR] [--steps STEPS]", "train.py: error: unrecognized arguments: --batchsize {n}",
        ), False),
        Ending(("bad_arguments",), (
            "usage: pretrain.py [-h] --data DATA", "pretrain.py: error: the following arguments are required: --data",
        ), False),
    ),
    "missing_data": ENDINGS["file_not_found"],
    "cuda_oom_at_start": ENDINGS["cuda_oom"],
    "assertion_at_start": ENDINGS["assertion"],
}  # fmt: skip
"""Failures that meet all ranks alike, before the first step or soon after it. No restart helps."""

_GLOO = "/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc"
CASCADES: tuple[tuple[str, ...], ...] = (
    (
        "Traceback (most recent call last):", *_MAIN, "    dist.all_reduce(grad)",
        '  File "{site}/torch/distributed/distributed_c10d.py", line 2810, in all_reduce', "    work.wait()",
        f"RuntimeError: [{_GLOO}:534] Connection closed by peer [10.4.0.{{n}}]:{{pid}}",
    ),
    (
        "Traceback (most recent call last):", *_MAIN, "    scaler.scale(loss).backward()",
        f"RuntimeError: [{_GLOO}:589] Read error [192.168.70.92]:25266: Connection reset by peer",
    ),
    (
        "[rank{rank}]:[E{glog} ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum={n}, OpType=ALLREDUCE, NumelIn=304640, NumelOut=304640, Timeout(ms)=600000) ran for 600001 "
        "milliseconds before timing out.",
        "[rank{rank}]:[E{glog} ProcessGroupNCCL.cpp:621] [Rank {rank}] Some NCCL operations have failed or timed out. Due "
        "to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.",
        "[rank{rank}]:[E{glog} ProcessGroupNCCL.cpp:627] [Rank {rank}] To avoid data inconsistency, we are taking the "
        "entire process down.",
        "terminate called after throwing an instance of 'c10::DistBackendError'",
        "  what():  [PG 0 (default_pg) Rank {rank}] Process group watchdog thread terminated with exception: [Rank {rank}] "
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={n}, OpType=ALLREDUCE)",
    ),
    (
        "{host}:{pid}:{pid} [4] NCCL INFO [Service thread] Connection closed by localRank 2",
        "[rank{rank}]:[E{glog} ProcessGroupNCCL.cpp:1664] [PG 1 Rank {rank}] Exception (either an error or timeout) "
        "detected by watchdog at work: {n}, last enqueued NCCL work: {n}, last completed NCCL work: 1.",
    ),
    (
        "[rank{rank}]:[W{glog} TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=135, addr=[{host}]:48750, "
        "remote=[{host}]:20000): Connection reset by peer",
        "[rank{rank}]:[W{glog} ProcessGroupNCCL.cpp:1771] [PG ID 0 PG GUID 0 Rank {rank}] Failed to check the \"should "
        "dump\" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Connection reset by peer",
    ),
    (
        "W{glog} {pid} torch/distributed/elastic/multiprocessing/api.py:900] Sending process {pid} closing signal SIGTERM",
    ),
    (
        "Traceback (most recent call last):", *_MAIN, "    dist.barrier()",
        '  File "{site}/torch/distributed/elastic/multiprocessing/api.py", line 76, in _terminate_process_handler',
        "    raise SignalException(f\"Process {{os.getpid()}} got signal: {{sigval}}\", sigval=sigval)",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process {pid} got signal: 15",
    ),
    (
        "{host}:{pid}:{pid} [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 172.36.143.59<44206> with "
        "status=12 opcode=129 len=65536 vendor err 129 (Recv) localGid ::ffff:29.87.88.182",
        "{host}:{pid}:{pid} [4] NCCL INFO transport/net.cc:1298 -> 6",
    ),
    (
        "Traceback (most recent call last):", *_MAIN, "    loss = step(batch)",
        '  File "{site}/torch/distributed/distributed_c10d.py", line 4120, in barrier', "    work.wait()",
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, "
        "remote process exited or there was a network error, NCCL version 2.21.5",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        "Last error:", "socketProgress: Connection closed by remote peer {host}<43912>",
    ),
    (
        "Traceback (most recent call last):", *_MAIN, "    queue.put(item)",
        "BrokenPipeError: [Errno 32] Broken pipe",
    ),
)  # fmt: skip
"""How ranks end after another one has ended."""

NOISE: tuple[str, ...] = (
    "validation: 0 errors in 2048 samples, error=0",
    "UserWarning: [Errno 28] No space left on device.  joblib will operate in serial mode",
    "loss: nan (skipped by scaler), scale lowered to 32768",
    "WARNING - fetching shard {n} failed: Connection reset by peer. Retrying in 2 s (attempt 1/5)",
    "Retrying after timeout: GET https://data.example/shard-{n}.tar",
    "WARNING: CUDA out of memory caught in autotuning, falling back to batch size 8",
    "{host}:{pid}:{pid} [1] NCCL INFO Connected all trees",
    "{host}:{pid}:{pid} [1] NCCL INFO NET/Plugin: Failed to find ncclCollNetPlugin symbol (>= v5).",
    "[W NNPACK.cpp:53] Could not initialize NNPACK! Reason: Unsupported hardware.",
    "libibverbs: Warning: couldn't open config directory '/etc/libibverbs.d'.",
    "pcieport 0000:00:03.0: AER: Corrected error received: 0000:00:03.0",
    "INFO handler for SIGTERM installed",
    "grad_norm=inf, overflow: skipping update, reducing loss scale to 65536.0",
    "DeprecationWarning: ImportError will be raised for torch.foo in the next version",
    "INFO - eval: accuracy 0.71, failed samples 0, timeouts 0",
    "nccl watchdog enabled, timeout 600 s",
    "checkpoint: previous save at /ckpt/{n} was killed, removed its leftovers",
    "error_rate 0.000 retries 0 oom_retries 0",
    "gpu memory: 61.2 GiB used, out of 79.1 GiB; peak memory 71 GiB",
)
"""Lines with frightening words that mean no harm."""
