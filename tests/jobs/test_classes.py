"""What a job's log says of its end, by classes of words: one line of each class tells whose fault it was."""

import pytest

from nhc.jobs.why import judge_end
from nhc.jobs.why_logs import JobLogs
from nhc.jobs.why_report import QUICK_TESTS, JobWhy, summary

LINES = [
    ("kernel", "node", "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0x56:1463)"),
    ("kernel", "node", "[ 1234.567] amdgpu 0000:c3:00.0: amdgpu: GPU reset end with ret = -62"),
    ("kernel", "node", "Nov 21 02:28:15 n1 kernel: mlx5_core 0000:5e:00.0: health recovery failed"),
    ("kernel", "node", "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Fatal, Link 32 egress non-posted PRIV error"),
    ("exception", "program", "ValueError: bad config value 3"),
    ("exception", "program", "[rank3]: mylib.ConfigError: no such key"),
    ("exception", "program", "2026-01-01 12:00:00,123 ERROR train: AssertionError: shapes differ"),
    ("exception", "program", "3: KeyError: 'lr'"),
    ("exception", "program", "omegaconf.errors.ConfigAttributeError: Key 'x' is not in struct"),
    ("exception", "program", "ERROR: LoadError: UndefVarError: foo not defined"),
    (
        "network",
        "network",
        "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='hub', port=443): Read timed out.",
    ),
    (
        "network",
        "network",
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='x', port=443): Max retries",
    ),
    ("network", "network", "curl: (28) Operation timed out after 300000 milliseconds with 0 bytes received"),
    ("network", "network", "curl: (6) Could not resolve host: example.org"),
    ("network", "network", "fsspec.exceptions.FSTimeoutError"),
    (
        "network",
        "network",
        'botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL: "https://s3.amazonaws.com/x"',
    ),
    ("network", "network", 'botocore.exceptions.ConnectTimeoutError: Connect timeout on endpoint URL: "https://s3"'),
    ("network", "network", "httpx.ConnectTimeout: timed out"),
    ("network", "network", "urllib.error.URLError: <urlopen error [Errno 110] Connection timed out>"),
    ("network", "network", "aiohttp.client_exceptions.ServerTimeoutError: Timeout on reading data from socket"),
    ("network", "network", "License server machine is down or not responding."),
    ("network", "network", 'FlexNet Licensing error:-15,570. System Error: 115 "Operation now in progress"'),
    ("network", "network", "Could not connect to license server on 27000@lic1"),
    ("network", "network", "wget: unable to resolve host address 'data.example.org'"),
    (
        "network",
        "network",
        "fatal: unable to access 'https://git/x/': Failed to connect to git port 443: Connection timed out",
    ),
    ("network", "network", "azure.core.exceptions.ServiceRequestError: Connection timed out"),
    ("person", "scheduler", "KeyboardInterrupt"),
    ("person", "scheduler", "^Csrun: interrupt (one more within 1 sec to abort)"),
    ("person", "scheduler", "srun: interrupt (one more within 1 sec to abort)"),
    ("person", "scheduler", "torch.distributed.elastic.multiprocessing.api.SignalException: Process 123 got signal: 2"),
    ("person", "scheduler", "torch.distributed.elastic.multiprocessing.api.SignalException: Process 123 got signal: 1"),
    ("person", "scheduler", "Received SIGHUP, exiting"),
    ("person", "scheduler", "Hangup"),
    ("person", "scheduler", "^C"),
    ("person", "scheduler", "[mpiexec@n1] Sending Ctrl-C to processes as requested"),
    ("scheduler", "scheduler", "Reason: Preempted"),
    (
        "scheduler",
        "scheduler",
        "Preempted to accommodate a workload (UID: x) due to prioritization",
    ),
    ("scheduler", "scheduler", "Workload evicted by Kueue: The workload is preempted"),
    ("scheduler", "scheduler", "pod disruption: PreemptionByScheduler"),
    ("scheduler", "scheduler", "The instance was preempted by the provider"),
    ("scheduler", "scheduler", "spot instance interruption notice received"),
    ("scheduler", "scheduler", "TERM_PREEMPT: job killed"),
    ("scheduler", "scheduler", "TERM_OWNER: job killed by owner."),
    ("scheduler", "time", "TERM_RUNLIMIT: job killed after reaching LSF run time limit."),
    ("scheduler", "memory", "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit."),
    ("scheduler", "time", "=>> PBS: job killed: walltime 3610 exceeded limit 3600"),
    ("scheduler", "memory", "=>> PBS: job killed: mem 4194304kb exceeded limit 2097152kb"),
    ("node", "node", "RuntimeError: CUDA error 802: system not yet initialized"),
    ("node", "node", "cudaErrorSystemNotReady"),
    (
        "node",
        "node",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
    ),
    (
        "node",
        "node",
        "libfabric:12:cxi:cxip_ep_ctrl_progress():1012<warn> cxip_eq fatal error: Input/output error",
    ),
    ("node", "node", "NCCL WARN Cuda failure 'system not yet initialized'"),
    ("node", "node", "NVLink error detected on GPU 3: link 5 is down"),
    (
        "loader",
        "program",
        "./a.out: error while loading shared libraries: libmpi.so.40: cannot open shared object file: No such file",
    ),
    ("loader", "program", "python: symbol lookup error: /opt/x.so: undefined symbol: foo"),
    ("loader", "program", "./a.out: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by ./a.out)"),
    ("loader", "program", "OSError: /opt/lib/x.so: invalid ELF header"),
    ("loader", "program", "ImportError: /opt/lib/x.so: wrong ELF class: ELFCLASS32"),
    ("loader", "program", "./app: error while loading shared libraries: libfoo.so: too short"),
    (
        "loader",
        "node",
        "slurmstepd: error: execve(): /var/spool/slurmd/job1234/slurm_script: No such file or directory",
    ),
    ("loader", "node", "/var/spool/slurmd/job01234/slurm_script: No such file or directory"),
    ("loader", "program", "/var/spool/slurmd/job1234/slurm_script: line 12: mytool: command not found"),
    ("mpi", "unknown", "ORTE has lost communication with a remote daemon."),
    ("mpi", "unknown", "PRTE has lost communication with a remote daemon."),
    ("controller", "network", "sbatch: fatal: Could not establish a configuration source"),
    ("licence", "network", "RLM License checkout error: Communications error with license server (-17)"),
    ("licence", "unknown", "License checkout failed."),
    ("network", "network", "http.client.RemoteDisconnected: Remote end closed connection without response"),
    ("network", "storage", "gsutil: ServiceException: 503 Server Error"),
    ("fortran", "program", "forrtl: severe (174): SIGSEGV, segmentation fault occurred"),
    ("fortran", "program", "Fortran runtime error: End of file"),
    ("loader", "program", "OSError: /opt/libfoo.so: undefined symbol: barInit, version libbar.so.12"),
    ("exception", "program", "[rank5] AssertionError: tensor sizes differ"),
    ("worker", "memory", "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."),
    ("worker", "unknown", "ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task."),
    ("worker", "unknown", "distributed.scheduler.KilledWorker: Attempted to run task on 4 workers, but all died"),
]
"""The class of words, whose fault it is, and the line."""


def why(*lines, nodes=("n1", "n2")):
    logs = JobLogs(nodes)
    logs.read("train.log", lines)
    return judge_end(logs.clues())


@pytest.mark.parametrize(("words", "cause", "line"), LINES, ids=[f"{row[0]}-{row[2][:40]}" for row in LINES])
def test_a_line_of_each_class_tells_whose_fault_it_was(words, cause, line):
    verdict = why("epoch 1", line, "srun: error: n1: task 0: Exited with exit code 1")
    assert verdict.cause == cause
    assert cause == "node" or not (verdict.first and verdict.first.cause == "node"), "no node is blamed"


@pytest.mark.parametrize(
    "line",
    [
        "WARNING retrying after ConnectionError: reset by peer",
        "ignored exception ValueError: x",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec 30 17:44:08 UTC 2024",
        "NVRM: Xid (PCI:0000:3b:00): 43, pid=1, name=python, Ch 00000008",
        "NVLink: 18 links, 0 errors",
        "[ 12.3] nvme nvme0: Removing after probe failure status: -19",
        "class ConfigError(Exception): pass",
        "handler for SIGINT installed",
        "cxip_getinfo: provider found",
        "loss 802 error rate 0.1",
        "Preemption checkpoint saved",
        "evicted 12 pages from the cache",
        "license server: 27000@lic1",
    ],
)
def test_what_says_nothing_of_the_end_blames_nobody(line):
    assert why(line).cause == "unknown"


def test_the_first_cause_counts_and_not_what_follows_from_it():
    verdict = why("CUDA out of memory. Tried to allocate 2.00 GiB", "[rank1]: ValueError: no answer of rank 0",
                  "KeyboardInterrupt", "srun: error: n1: task 0: Exited with exit code 1")  # fmt: skip
    assert (verdict.cause, verdict.first.kind) == ("program", "gpu-memory")


def test_what_the_program_got_over_is_not_the_cause():
    retried = "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='hub', port=443): Read timed out."
    training = [f"batch {number}" for number in range(200)]
    assert why(retried, *training, "CUDA out of memory. Tried to allocate 2.00 GiB").first.kind == "gpu-memory"
    assert why(retried, "RuntimeError: no data set").first.kind == "http-timeout", "the program failed because of it"


def test_a_restart_helps_elsewhere_where_the_node_is_broken():
    verdict = why("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0x56:1463)", nodes=("n1",))
    assert verdict.restart == "elsewhere"
    assert summary(JobWhy("7", verdict))[2].startswith("restart: yes, but not on this node: without n1")
    assert why("CUDA out of memory. Tried to allocate 2.00 GiB").restart == "no"
    assert why("curl: (28) Operation timed out after 300000 milliseconds").restart == "may"


def test_who_does_not_know_says_what_to_do():
    for verdict in (why("Killed"), why("epoch 1"), why("ORTE has lost communication with a remote daemon.")):
        assert verdict.cause == "unknown"
        assert QUICK_TESTS in summary(JobWhy("7", verdict))[2]
