"""Where a command's work runs: in this process, in processes beside it, or on the machines of a Ray cluster, the second
adapter of `foundation.executors`.

What the port promises, also when a machine is lost: its jobs are run again on the others. A machine that holds a
wallet's key, runs a validator or another release, runs no job: the work ends with V2207 or V2008. A client that
reaches a cluster's ports and has its token runs what it likes there as this user. Jobs are values; where they name
files (`Shard`), each machine has to see those under the same path.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import secrets
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import typer

from foundation.codes import HOST_UNLIKE
from foundation.errors import ArenaError, Failure, counted
from foundation.executors import Executor, Job, OnLost, ProcessExecutor, Result, answered, in_order

PARALLEL_FROM = 2_000  # records from which starting processes pays
LOCAL = "local"
_LOOPBACK = "127.0.0.1"
_PUBLIC = "pub.txt"  # how btcli ends the names of files that hold no secret
_INSTALL = "install it: pip install -c constraints.txt 'agent-arena[cluster]'"
_VALIDATOR = re.compile(  # of a command line whose words are cut to their file names
    r"(python[0-9.]* (-X \S+ |-m |-[^m ]\S* )*)?"
    r"((arena|neurons\.cli\.app|app\.py) validator(?! (status|pause))|validator\.py|neurons\.validator)(?= |$)"
    r"(?!.* --(dry-run|help))"
)

_work: tuple[str, Callable[[Any], Any]] | None = None  # of a worker process: the function it was sent last, by its name


@contextlib.contextmanager
def open_executor(cluster: str, processes: int | None, records: int, *, state_dir: Path | None) -> Iterator[Executor]:
    """The cluster at that address, or `local`; where that is "", so many processes, with 0 this one, and with None as
    many as so many records are worth. `state_dir`: the command's own; a validator that runs over it is refused.

    Work that was lost is said on standard error and run again. Raises ArenaError V2207, V2060 for a cluster.
    """
    if cluster:
        with open_cluster(cluster, _say_lost, state_dir and state_dir.absolute()) as executor:
            yield executor
        return
    worth = len(os.sched_getaffinity(0)) if records >= PARALLEL_FROM else 0  # one a core
    yield ProcessExecutor(worth if processes is None else processes, _say_lost)


def _say_lost(lost: int) -> None:
    typer.echo(f"{counted(lost, 'job')} lost with process or machine; run again", err=True)


def is_validator(words: Sequence[str]) -> bool:
    """Whether a command line starts a validator, of this subnet or by its file's name of another one."""
    return _VALIDATOR.match(" ".join(Path(word).name for word in words)) is not None


def require_no_keys(state_dir: Path | None) -> None:
    """Raises ArenaError V2207 with the first private key below the wallets' folder, encrypted or not, by its name; or
    with a validator, whose key may lie anywhere: one among the processes, or one whose node said so lately in the state
    folder (it may run in a container). `state_dir`: the folder that the command was given, None: the one that is set.
    """
    import psutil

    from neurons.health.status import SILENT_MS, read_node_file
    from neurons.settings.inputs import unix_ms
    from neurons.settings.settings import resolve

    settings = resolve({"state_dir": state_dir}).settings
    for pattern in ("*/coldkey", "*/hotkeys/*"):
        for key in sorted(settings.wallet_path.glob(pattern)):
            if key.is_file() and not key.name.endswith(_PUBLIC):
                raise ArenaError("V2207", str(key))
    for process in psutil.process_iter(["cmdline"]):
        if is_validator(words := process.info["cmdline"] or ()):
            raise ArenaError("V2207", f"a validator runs here: process {process.pid}, {' '.join(words)[:100]}")
    node = read_node_file(settings.state_dir)
    if node.beat is not None and node.ending is None and abs(unix_ms() - node.beat.beat_ms) <= SILENT_MS:
        raise ArenaError("V2207", f"validator {node.beat.hotkey} runs here, over {settings.state_dir}")


class RayExecutor:
    """`Executor` of the cluster that this process is connected to, one job a processor, and no more than memory holds.
    No machine runs one that holds a key, or a validator over the state folder of that name."""

    def __init__(self, on_lost: OnLost = lambda lost: None, state_dir: Path | None = None) -> None:
        import ray

        self.slots = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._on_lost, self._state_dir = on_lost, state_dir

    def map(
        self, work: Callable[[Job], Result], jobs: Iterable[Job], *, died: str, memory_bytes: int = 0
    ) -> Iterator[Result]:
        """The results of `work`, in order. It is sent once to each process that runs it. A job claims `memory_bytes` of
        its machine."""
        import ray
        from ray.exceptions import NodeDiedError, ObjectLostError, OutOfMemoryError, WorkerCrashedError

        from neurons.settings.inputs import code_commit

        machines = [int(node["Resources"].get("memory", 0)) for node in ray.nodes() if node["Alive"]]
        claim = min(memory_bytes, max(machines, default=0))  # what no machine has would never run: the largest one's
        # `in_order` runs lost jobs again, and counts them
        run = ray.remote(max_retries=0, **({"memory": claim} if claim else {}))(_run)
        name, held = uuid.uuid4().hex, ray.put(work)
        wanted = code_commit(), self._state_dir

        def submit(job: Job) -> Future[Result | Failure]:
            answer: Future[Result | Failure] = run.remote(name, wanted, [held], job).future()
            return answer

        return in_order(
            submit,
            jobs,
            depth=2 * self.slots,
            lost=(WorkerCrashedError, NodeDiedError, ObjectLostError, OutOfMemoryError),
            died=died,
            on_lost=self._on_lost,
        )


@contextlib.contextmanager
def open_cluster(address: str, on_lost: OnLost = lambda _: None, state_dir: Path | None = None) -> Iterator[Executor]:
    """The cluster at `address`, host:port of its head, or `local`: one of this machine that ends with the block.

    This process runs on a machine of the cluster (`ray start --address=...`). The token is the one that Ray finds:
    RAY_AUTH_TOKEN, the file in RAY_AUTH_TOKEN_PATH, or ~/.ray/auth_token. `state_dir`: the folder that the command was
    given, None: the one that is set. Raises ArenaError V2207 where this host holds a key or runs a validator, V2060
    without Ray, V2207 for a cluster that does not answer.
    """
    require_no_keys(state_dir)
    if importlib.util.find_spec("ray") is None:
        raise ArenaError("V2060", "Ray is not installed here, and --cluster asks for it", fix=_INSTALL)
    with contextlib.ExitStack() as stack:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}  # read when ray is imported
        if address == LOCAL:
            place = tempfile.TemporaryDirectory(prefix="arena-ray-", ignore_cleanup_errors=True)
            token = Path(stack.enter_context(place)) / "token"
            token.write_text(secrets.token_hex(32))
            os.environ["RAY_AUTH_TOKEN_PATH"] = str(token)
        import ray
        from ray.exceptions import RayError

        # it tells of lost machines on stdout, which is the command's, with no setting for it; `on_lost` hears of them
        ray._private.worker.print_to_stdstream = lambda data, ignore_prefix: None
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        try:
            if address == LOCAL:
                ray.init(include_dashboard=False, _node_ip_address=_LOOPBACK, _temp_dir=place.name, **quiet)
            else:
                ray.init(address=address, **quiet)
        except (OSError, RayError, RuntimeError, ValueError) as error:
            why = str(error).strip().partition("\n")[0].partition(". ")[0]
            raise ArenaError("V2207", f"{address}: {why or type(error).__name__}") from error
        stack.callback(ray.shutdown)
        yield RayExecutor(on_lost, state_dir)


def _run(name: str, wanted: tuple[str, Path | None], held: list[Any], job: Any) -> Any | Failure:
    """One job in a worker process of the cluster. `wanted`: the release and the state folder of the command; `held` is
    the function's place in the cluster: fetched once."""
    global _work
    if _work is None or _work[0] != name:
        import ray

        from neurons.settings.inputs import code_commit

        release, state_dir = wanted
        try:
            require_no_keys(state_dir)
        except ArenaError as error:
            return error.failure
        if (own := code_commit()) != release:
            detail = f"{os.uname().nodename}: release {own[:12]}, where the work is {release[:12]}"
            return Failure(code=HOST_UNLIKE, detail=detail)
        _work = name, ray.get(held[0])
    return answered(_work[1], job)
