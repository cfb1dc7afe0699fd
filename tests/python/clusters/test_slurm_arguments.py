"""What slurm_cluster() takes, what it asks Slurm for, and how its errors read. Without Slurm."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
from launched import wait_for
from refusals import assert_says

import tfdistr
from tfdistr.clusters.remote_worker import RemoteJob, RemoteWorker, message_in
from tfdistr.clusters.slurm import programs as slurm_programs
from tfdistr.clusters.slurm import slurm_cluster as slurm_cluster_module
from tfdistr.clusters.slurm.programs import check_programs, mpi_of_srun, state_of_job
from tfdistr.clusters.slurm.ranks import how_ended, lost_error
from tfdistr.errors import ArgumentError, ClusterStartError, WorkerFailedError
from tfdistr.utils.processes import ProgramEnd, run_program

ALLOCATION = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[9-11]", "SLURM_TASKS_PER_NODE": "2(x2),1",
    "SLURM_NTASKS": "5", "SLURM_JOB_CPUS_PER_NODE": "4(x2),2",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("SLURM_", "PMI", "OMPI_", "TF_CONFIG"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def _allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ALLOCATION.items():
        monkeypatch.setenv(name, value)


class Job(RemoteJob):
    """Workers that nothing has started."""

    def look(self) -> None:
        pass

    def send(self, worker: RemoteWorker, number: signal.Signals) -> None:
        pass

    def reap(self) -> None:
        pass


def ranks(tmp_path: Path, *pids: int) -> list[RemoteWorker]:
    made = Job(tmp_path, range(len(pids)), "a Slurm node").workers
    for rank, pid in zip(made, pids, strict=True):
        rank.take({"pid": pid, "host": f"n{9 + rank.index}"})
    return made


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"nodes": None},
         ["Outside an allocation of Slurm, `nodes`",
          "Received: no `nodes`, and no SLURM_JOB_ID in the environment"]),
        ({"partition": "two words"},
         ["`partition` must be a Slurm name, without", "Received: a text ('two words')",
          "Fix: Pass a partition that exists (sinfo, sacctmgr show"]),
        ({"time": "soon"},
         ["`time` must be a Slurm time limit.", "Received: a text ('soon')",
          'Fix: Pass time="30" for minutes, "2:30:00" for hours, or "1-12"']),
        ({"options": ["mem"]},
         ["`options` must map the long names of", 'Received: ["mem"]',
          'Fix: Pass for example options={"mem": "8G", "exclusive": True}.']),
        ({"options": {"--mem": "8G"}}, ["Each name in `options` must be the long", 'Received: "--mem"']),
        ({"options": {"ntasks": 4}},
         ["`options` must not have 'ntasks': tfdistr", 'Received: "ntasks"',
          "Fix: Leave it out; see the argument `workers` of slurm_cluster()."]),
        ({"options": {"gpus_per_task": 1}},
         ["`options` must not have 'gpus-per-task':", 'Received: "gpus_per_task"',
          "Fix: Leave it out; see the argument `gpus_per_worker` of"]),
        ({"nodes": 3, "workers": 4},
         ["`workers` must be a multiple of the number", "Received: workers=4, and 3 nodes",
          "Fix: Pass workers=3, or leave it out."]),
        ({"nodes": 2, "workers": 4, "workers_per_host": 3},
         ["`workers` must be `workers_per_host` times",
          "Received: workers=4, workers_per_host=3, and 2 nodes", "Fix: Pass workers=6, or leave it out."]),
        ({"options": {"comment": "a\n#SBATCH --uid=0"}},
         ["`options` must give 'comment' a value that", 'Received: "a\\n#SBATCH --uid=0"',
          'Fix: Pass for example options={"mem": "8G", "exclusive": True}.']),
        ({"setup": 5},
         ["`setup` must be lines for a shell, as", "Received: 5",
          'Fix: Pass setup=["module load cuda"], for example, or leave it']),
        ({"template": "#!/bin/sh\nsrun x"},
         ["`template` must be a script that begins",
          'Received: "#!/bin/sh", without {options} and {command}',
          'Fix: Pass "#!/bin/sh\\n{options}\\n{setup}\\nexec {command}\\n", with']),
    ],
)  # fmt: skip
def test_arguments_that_are_refused(arguments: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(ArgumentError) as caught:
        tfdistr.slurm_cluster(**{"nodes": 1, **arguments})
    assert_says(caught.value, said)


@pytest.mark.parametrize(
    ("given", "limit"),
    [(30, "30"), (90.0, "90"), ("5:00", "5:00"), ("1-12", "1-12"), ("2-0:30:00", "2-0:30:00"), (None, None)],
)
def test_time_limits(given: Any, limit: str | None) -> None:
    assert tfdistr.slurm_cluster(1, time=given).time == limit


def test_the_script_of_a_job() -> None:
    cluster = tfdistr.slurm_cluster(
        2, workers=6, cores_per_worker=4, gpus_per_worker=1, partition="gpu", time=30, account="me",
        setup=["module load cuda", "set -e"],
        options={"exclusive": True, "mem": "8G", "comment": "it's"},
        template="#!/bin/bash\n{options}\n# mine\n{setup}\n{command}\n",
    )  # fmt: skip
    assert cluster.workers == 6
    assert cluster.script(["srun", "a b"]).splitlines() == [
        "#!/bin/bash", "#SBATCH --job-name=tfdistr", "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=3",
        "#SBATCH --cpus-per-task=4", "#SBATCH --gpus-per-task=1", "#SBATCH --partition=gpu",
        "#SBATCH --time=30", "#SBATCH --account=me", "#SBATCH --no-requeue", "#SBATCH --exclusive",
        "#SBATCH --mem=8G", """#SBATCH --comment='it'"'"'s'""", "# mine", "module load cuda", "set -e",
        "srun 'a b'",
    ]  # fmt: skip


@pytest.mark.usefixtures("_allocation")
@pytest.mark.parametrize(
    ("arguments", "counts"),
    [
        ({}, (2, 2, 1)),
        ({"nodes": 2}, (2, 2)),
        ({"workers_per_host": 3}, (3, 3, 3)),
        ({"workers": 6}, (2, 2, 2)),
        ({"workers": 2}, (1, 1)),
        ({"nodes": 1, "workers_per_host": 4}, (4,)),
        ({"nodes": 1, "workers": 4, "workers_per_host": 4}, (4,)),
        ({"nodes": 4}, (2, 2, 1, 2)),  # which check() refuses
    ],
)
def test_workers_are_as_the_allocation_says(arguments: dict[str, int], counts: tuple[int, ...]) -> None:
    assert tfdistr.slurm_cluster(**arguments).counts == counts


def test_an_allocation_that_names_no_tasks_has_one_on_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE"):
        monkeypatch.setenv(name, ALLOCATION[name])
    assert tfdistr.slurm_cluster().counts == (1, 1, 1)


def test_the_command_of_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = tfdistr.slurm_cluster(2, workers=4, cores_per_worker=3, gpus_per_worker=1)
    common = ["--nodes=2", "--ntasks=4", "--ntasks-per-node=2", "--cpus-per-task=3", "--gpus-per-task=1"]
    assert batch.srun()[5:] == ["--mpi=none", *common]
    for name, value in {**ALLOCATION, "SLURM_CPUS_PER_TASK": "2"}.items():
        monkeypatch.setenv(name, value)
    assert tfdistr.slurm_cluster().srun()[5:] == [
        "--mpi=none", "--nodes=3", "--ntasks=5", "--cpus-per-task=2", "--overlap",
    ]  # fmt: skip
    left = attrs.evolve(batch, nodes=3, without_nodes=("n9",), mpi="pmi2")
    assert left.srun()[5:] == ["--mpi=pmi2", *common, "--exclude=n9", "--overlap"]


@pytest.mark.usefixtures("_allocation")
def test_a_cluster_without_a_lost_worker_is_without_its_node() -> None:
    left = tfdistr.slurm_cluster().without(2, min_workers=3)
    assert left is not None
    assert (left.counts, left.without_nodes) == ((2, 1), ("n10",))
    assert left.without(0, min_workers=2) is None


def test_the_next_job_has_a_node_less() -> None:
    left = tfdistr.slurm_cluster(3, workers_per_host=2).without(1, min_workers=4)
    assert left is not None
    assert left.counts == (2, 2)
    assert left.without(0, min_workers=3) is None
    assert tfdistr.slurm_cluster(1, workers_per_host=4).without(0, min_workers=1) is None


def test_no_program_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ClusterStartError, match=r"slurm_cluster\(\) needs the Slurm programs\.") as caught:
        tfdistr.distributed_fit(dict, [[1.0]], [1.0], cluster=tfdistr.slurm_cluster(2))
    assert caught.value.received == "no sbatch and no scontrol and no scancel on PATH"
    with pytest.raises(ClusterStartError, match="no srun on PATH"):
        check_programs("srun")


def test_a_task_of_srun_starts_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**ALLOCATION, "SLURM_PROCID": "0", "SLURM_STEP_ID": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ArgumentError, match=r"slurm_cluster\(\) is for one process, which") as caught:
        tfdistr.slurm_cluster().backend("auto")
    assert caught.value.received == "a task of srun, one of several that run this script"


@pytest.fixture
def _programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfdistr.clusters.slurm.slurm_cluster.check_programs", lambda *programs: None)


@pytest.mark.usefixtures("_programs")
def test_an_mpi_that_srun_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_programs, "_mpi_types", lambda: ("none", "pmi2"))
    monkeypatch.setattr("tfdistr.clusters.backend._library", lambda python: ("Open MPI v5.0.3", None))
    monkeypatch.setattr("tfdistr.clusters.backend.has_mpi4py", lambda: True)
    with pytest.raises(ClusterStartError, match='communication="mpi" needs an MPI library that') as caught:
        tfdistr.slurm_cluster(2).backend("mpi")
    assert caught.value.received == "srun has no --mpi=pmix, which Open MPI v5.0.3 needs"
    monkeypatch.setattr("tfdistr.clusters.backend.has_mpi4py", lambda: False)
    with pytest.raises(ClusterStartError, match="Received: no mpi4py"):
        tfdistr.slurm_cluster(2).backend("mpi")
    assert tfdistr.slurm_cluster(2).backend("ring").reason == "the caller asked for it"


def test_the_option_that_starts_an_mpi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path, srun='[ "$1" = --mpi=list ] && echo none pmi2 >&2 && echo pmix')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    slurm_programs._mpi_types.cache_clear()
    assert mpi_of_srun("Open MPI v5.0.3", 2) == ("pmix", "")
    assert mpi_of_srun("MPICH Version: 5", 2) == ("pmi2", "")
    slurm_programs._mpi_types.cache_clear()


@pytest.mark.usefixtures("_allocation")
def test_ranks_that_do_not_find_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_programs, "_mpi_types", lambda: ("pmi2",))
    slurm_programs._tried.cache_clear()
    monkeypatch.setattr(slurm_programs, "ask_slurm", lambda *_, **__: ProgramEnd("", "no PMI"))
    assert mpi_of_srun("MPICH", 2) == (None, "two ranks of srun --mpi=pmi2 did not join: no PMI")
    slurm_programs._tried.cache_clear()


@pytest.mark.parametrize(
    ("output", "failure", "state"),
    [
        ("JobId=14 JobState=PENDING Reason=BeginTime Dependency=(null) Requeue", None, "PENDING (BeginTime)"),
        ("JobId=14 JobState=RUNNING Reason=None Dependency=(null) Requeue=1", None, "RUNNING"),
        ("", "slurm_load_jobs error: Invalid job id specified", "COMPLETED"),
        ("", "slurm_load_jobs error: Unable to contact slurm controller", ""),
    ],
)
def test_the_state_of_a_job(
    output: str, failure: str | None, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_programs, "ask_slurm", lambda *_: ProgramEnd(output, failure))
    assert str(state_of_job("14")) == state


def test_a_rank_that_its_guard_reports_as_stopped_is_stopped(tmp_path: Path) -> None:
    guard = """
import signal
from tfdistr.clusters.guard import say, start, watch
child = start(["sleep", "60"])
watch(child.pid, iter([True, False, 0]), first=signal.SIGTERM, then=signal.SIGKILL, grace=1, say=say)
"""
    reports = subprocess.run([sys.executable, "-c", guard], capture_output=True, text=True, check=True).stdout
    (rank,) = ranks(tmp_path, 11)
    stopped = []
    for line in reports.splitlines():
        rank.take(message_in(line))
        stopped.append(rank.is_stopped)
    assert stopped == [True, False]


def test_a_program_that_hangs_or_is_absent_says_so() -> None:
    assert run_program(["sleep", "5"], 0.1).failure == "no answer within 0.1 s"
    assert run_program(["/nowhere/squeue"], 5).failure == "/nowhere/squeue: No such file or directory"


@pytest.mark.parametrize(
    ("status", "said"), [(1, "exited with status 1"), (137, "was killed by SIGKILL"), (-9, "SIGKILL")]
)
def test_how_srun_ended(status: int, said: str) -> None:
    assert how_ended(status).endswith(said)


@pytest.mark.usefixtures("_allocation")
def test_an_allocation_with_too_few_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_cluster_module, "check_programs", lambda *names: None)
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "1")
    with pytest.raises(ClusterStartError) as caught:
        tfdistr.slurm_cluster(workers_per_host=2, gpus_per_worker=1).check()
    assert str(caught.value).splitlines()[:2] == [
        "The allocation of Slurm must have the nodes, processors and GPUs that the cluster asks for.",
        "Received: job 7 with 2 workers with 1 each, and 1 visible GPU (SLURM_GPUS_ON_NODE)",
    ]
    for options in ({"workers_per_host": 1, "gpus_per_worker": 1}, {"workers_per_host": 2}):
        tfdistr.slurm_cluster(**options).check()


def test_gpus_that_the_job_does_not_have(tmp_path: Path) -> None:
    lines = ["srun: error: Unable to create step for job 5: Invalid generic resource (gres) specification"]
    error = lost_error("srun exited with status 1", lines, *[ranks(tmp_path, 0)] * 2)
    assert isinstance(error, ClusterStartError)
    assert error.fix is not None
    assert error.fix.startswith("Ask sbatch or salloc for the GPUs of each node, as in --gres=gpu:2")


def test_a_lost_node_is_named(tmp_path: Path) -> None:
    made = ranks(tmp_path, 11, 12)
    lines = ["srun: error: Node failure on n10", "srun: Job step aborted: Waiting up to 7 seconds"]
    error = lost_error("srun exited with status 1", lines, made, made)
    assert isinstance(error, WorkerFailedError)
    assert str(error).splitlines() == [
        "Workers 0 on n9, 1 on n10 were lost: srun exited with status 1, after the loss of node n10.", "",
        "Its last lines:", "  srun: error: Node failure on n10",
        "Fix: Check whether somebody, or Slurm, has ended the job (sacct, scontrol show job).",
    ]  # fmt: skip
    assert (error.worker, error.host, error.pid) == (1, "n10", 12)


def test_a_worker_whose_guard_was_killed_is_named(tmp_path: Path) -> None:
    made = ranks(tmp_path, 11, 12)
    lines = ["srun: error: n10: task 1: Killed", "srun: error: n9: task 0: Terminated"]
    error = lost_error("srun exited with status 137", lines, made, made)
    assert str(error).splitlines()[0] == (
        "Workers 0 on n9, 1 on n10 were lost: srun exited with status 137, "
        "after the end of worker 1 (Killed)."
    )
    assert (error.worker, error.host) == (1, "n10")
    assert lost_error("srun exited with status 137", lines[:1], made, made[:1]).worker is None
    assert lost_error("Slurm job 7 ended: TIMEOUT", lines, made, made).worker is None


def test_workers_that_never_started_are_named(tmp_path: Path) -> None:
    made = ranks(tmp_path, 11, 0)
    error = lost_error("srun exited with status 1", [], made, made)
    assert isinstance(error, ClusterStartError)
    assert str(error).splitlines()[:3] == [
        "Slurm did not start all 2 workers, or the job ended before they did.",
        "Received: srun exited with status 1 without workers 1. Its last lines:", "  (nothing)",
    ]  # fmt: skip


def test_the_canceller_waits_for_the_end_of_its_parent(tmp_path: Path) -> None:
    note = tmp_path / "note"
    programs(tmp_path, scancel=f'echo "$@" > {note}')
    program = (
        "import sys; from tfdistr.clusters.guard import after_exit; after_exit('cancel', '12'); "
        "sys.stdin.read()"
    )
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, env=env)
    with pytest.raises(subprocess.TimeoutExpired):
        parent.wait(1.5)
    assert not note.exists()
    parent.kill()
    parent.communicate()
    assert wait_for(note.exists, 20)
    assert wait_for(lambda: note.read_text() == "12\n", 5)


def programs(folder: Path, **scripts: str) -> None:
    """Programs in the place of those of Slurm."""
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)


def test_a_job_whose_submission_is_interrupted_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path, sbatch="touch begun; sleep 1; echo 12", scancel='echo "$@" > cancelled')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)

    def interrupt() -> None:
        wait_for((tmp_path / "begun").exists, 20)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        tfdistr.slurm_cluster(2).start(["true"], tmp_path / "run")
    assert (tmp_path / "cancelled").read_text() == "12\n"


def test_a_preempted_job_says_how_it_would_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = "echo JobState=PREEMPTED Reason=None Dependency="
    programs(tmp_path, sbatch="echo 12", scancel="true", scontrol=state)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("tfdistr.clusters.slurm.sbatch._SETTLE", 0.0)
    rank, _ = tfdistr.slurm_cluster(2).start(["true"], tmp_path / "run")
    assert rank.poll() == 1
    error = rank.launch_error()
    assert error is not None
    assert str(error.received).startswith("Slurm job 12 ended: PREEMPTED without workers 0, 1.")
    assert error.fix.startswith("Pass failures=on_failure(max_restarts=3) and `checkpoint_every`:")
    rank.reap()


def test_a_long_queue_is_looked_at_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(
        tmp_path, sbatch="echo 12", scancel="true", scontrol="echo JobState=PENDING Reason=X Dependency="
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    ranks = tfdistr.slurm_cluster(2).start(["true"], tmp_path / "run")
    batch: Any = ranks[0]._job
    assert batch._pause() == 1.0
    batch._submitted -= 100
    assert 5 <= batch._pause() < 6
    batch._submitted -= 10_000
    assert batch._pause() == 15.0
    ranks[0].end(1)
    assert batch._pause() == 1.0
    batch._canceller.kill()
    batch._canceller.wait()


def test_signs_of_life_may_come_as_late_as_the_file_system_shows_them(tmp_path: Path) -> None:
    job = Job(tmp_path, [0], "a")
    (rank,) = job.workers
    assert rank.silent_for == 0.0
    rank.take({"pid": 1})
    rank.heard = time.monotonic() - 70
    assert 70 <= rank.silent_for < 75
    job.late = 60.0
    assert 10 <= rank.silent_for < 15
