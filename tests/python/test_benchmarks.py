"""The networks of `make bench`, and what it prints about systems that fail."""

from __future__ import annotations

import contextlib
import sys
import time

import numpy as np
import pytest
from paths import ROOT

sys.path.append(str(ROOT / "benchmarks"))
import memory
import networks
import on_engines
import processes
import report
import systems


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_a_network_has_the_declared_weights_and_trains(name):
    model = networks.model(name)
    model.run_eagerly = True  # tracing takes longer than the step
    x, y = networks.data(name)
    loss, _ = model.train_on_batch(x[:4], y[:4])
    assert np.isfinite(loss)
    weights = sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)
    assert weights == networks.NETWORKS[name].weights


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_all_steps_of_an_epoch_have_the_same_shape(name):
    # A program that is compiled for a shape would be compiled again for the rest of an epoch.
    x, y = networks.data(name)
    assert len(x) == len(y) == networks.amount(name, 2)[0]
    assert len(x) % (systems.WORKERS * networks.PER_WORKER_BATCH) == 0


def test_fewer_steps_are_two_epochs_of_global_batches():
    assert networks.amount("seed", workers=2, steps=3) == (3 * 2 * 64, 2)


@pytest.fixture
def lines(monkeypatch):
    monkeypatch.setattr(report, "machine", lambda: "a machine")
    speeds = {systems.DDP: 900.0, systems.KERAS_JAX: 1000.0, systems.MPI: 1100.0}
    found = {name: [report.Run(speed, 100.0, None)] for name, speed in speeds.items()}
    found[systems.KERAS_TORCH] = []
    failures = {("mlp", systems.KERAS_TORCH): "not installed"}
    return report.report({"mlp": found}, failures, {}, rounds=1).splitlines()


def test_tfdistr_is_compared_with_the_best_rival(lines):
    assert "ok       1.10 >= 1.00   mlp: tfdistr, MPI / the best rival, Keras 3 on JAX" in lines
    (row,) = (line for line in lines if line.startswith(systems.MPI))
    assert "1,100" in row
    assert row.endswith("DDP 1.22, best rival 1.10 (1)")


def test_a_rival_that_failed_has_a_dash_and_a_reason(lines):
    (row, why) = (line for line in lines if systems.KERAS_TORCH in line)
    assert row.split() == [*systems.KERAS_TORCH.split(), "-"]
    assert why == f"- {systems.KERAS_TORCH}: not installed"


def test_several_networks_have_a_summary():
    systems_of = {systems.DDP: 900.0, systems.COMPILED: 1200.0, systems.MPI: 600.0}
    found = {name: [report.Run(speed, 100.0, None)] for name, speed in systems_of.items()}
    alone = {systems.MPI: [report.Run(5.0, 100.0, None)]}
    _, _, *rows = report.summary({"mlp": found, "lstm": alone})
    assert [row.split(maxsplit=6) for row in rows] == [
        ["mlp", "600", "900", "-", "-", "-", f"0.50  {systems.COMPILED}"],
        ["lstm", "5", "-", "-", "-", "-"],
    ]


def test_a_program_that_fails_is_named_while_its_peer_waits():
    waits = [sys.executable, "-c", "import time; time.sleep(60)"]
    fails = [sys.executable, "-c", "raise ValueError('no')"]
    began = time.monotonic()
    with pytest.raises(processes.Failed) as failed:
        processes.run([waits, fails])
    assert failed.value.reason == "ended with status 1: ValueError: no"
    assert time.monotonic() - began < 30


def test_an_environment_that_is_not_there_is_no_command():
    with pytest.raises(processes.Failed) as failed:
        processes.python("ddp.py", of=processes.environment("bench-none"))
    assert failed.value.reason == "not installed"


def test_memory_that_grows_is_found():
    steady = [100.0] * memory.EPOCHS
    growing = [100.0 + 0.2 * epoch for epoch in range(memory.EPOCHS)]
    assert memory.growth_mb(steady) == 0
    assert memory.growth_mb(growing) > memory.GROWTH_BAR


@pytest.fixture
def results():
    case, slow = on_engines.Case("ssh", 2, 10), on_engines.Case("Slurm", 4, 1)
    return {
        (case, "mpi"): [on_engines.Result({"seed": speed}, 5.0) for speed in (1000.0, 2000.0, 9000.0)],
        (case, "ring"): [on_engines.Result({"seed": 1000.0}, 4.0)],
        (slow, "mpi"): [on_engines.Result({"seed": 100.0}, 4.1)],
    }


def test_mpi_is_compared_with_the_ring_on_each_engine(results):
    lines, bars = on_engines.speed_table("seed", results)
    assert [line.split() for line in lines[2:]] == [
        ["ssh", "2", "10", "2,000", "1,000", "2.00"],
        ["Slurm", "4", "1", "100", "-", "-"],
    ]
    assert bars == [
        "ok       2.00 >= 1.70   seed: ssh, 2 workers, 10 Gbit/s: MPI / ring",
        "MISSED    nan >= 1.70   seed: Slurm, 4 workers, 1 Gbit/s: MPI / ring",
    ]


def test_a_start_over_mpi_may_take_a_little_longer(results):
    lines, bars = on_engines.start_table(results)
    assert lines[2].split() == ["ssh", "2", "5.00", "4.00", "1.00"]
    assert [bar.split()[0] for bar in bars] == ["MISSED", "MISSED"]


def test_engines_that_are_not_there_have_a_reason(monkeypatch, capsys):
    monkeypatch.setattr(report, "machine", lambda: "a machine")
    for module in (on_engines.hosts, on_engines.netns):
        monkeypatch.setattr(module, "missing", lambda: "network namespaces need root")
    on_engines.compare(1, ("seed",))
    lines = capsys.readouterr().out.splitlines()
    for engine in ("TF_CONFIG", "ssh", "Slurm", "pods"):
        assert f"-: {engine}: network namespaces need root" in lines


def test_a_job_that_fails_has_a_reason_and_the_others_are_measured(monkeypatch, capsys):
    def start(job):
        (job.folder / "called").write_text("100")
        if job.communication == "ring":
            raise processes.Failed("a long text", "ended with status 1")
        for worker in range(job.workers):
            (job.folder / "seed" / f"{worker}.first").write_text(f"{104 + worker}")
            (job.folder / "seed" / f"{worker}.json").write_text('{"epochs": [9, 2, 2]}')

    monkeypatch.setattr(report, "machine", lambda: "a machine")
    monkeypatch.setattr(on_engines, "engines", lambda reasons: contextlib.nullcontext({"ssh": start}))
    on_engines.compare(1, ("seed",))
    lines = capsys.readouterr().out.splitlines()
    assert ["ssh", "4", "10", "6,400", "-", "-"] in [line.split() for line in lines]
    assert ["ssh", "2", "5.00", "-", "-"] in [line.split() for line in lines]
    assert "-: ssh, 2 workers, 1 Gbit/s, ring: ended with status 1" in lines
