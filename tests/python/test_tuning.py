"""The settings that make TensorFlow fast on the processor of a process."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import tfdistr
from tfdistr.errors import ArgumentError
from tfdistr.utils import tuning
from tfdistr.utils.tuning import ONEDNN, TUNING, tuned_environment

ON_X86 = platform.machine() in ("x86_64", "AMD64")
x86 = pytest.mark.skipif(not ON_X86, reason="TensorFlow for other processors has no oneDNN by default")


@pytest.fixture
def on(monkeypatch):
    """Has the tests run on another kind of machine."""
    return lambda machine: monkeypatch.setattr(platform, "machine", lambda: machine)


def test_workers_on_x86_have_onednn(on):
    on("x86_64")
    assert tuned_environment({}) == {TUNING: "1", ONEDNN: "1", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def test_workers_without_onednn_keep_their_memory(on):
    on("aarch64")
    kept = tuned_environment({})
    assert kept.keys() == {TUNING, "GLIBC_TUNABLES"}
    assert "glibc.malloc.trim_threshold=" in kept["GLIBC_TUNABLES"]
    on("x86_64")
    assert tuned_environment({ONEDNN: "0"}) == kept


def test_variables_of_the_user_take_precedence(on):
    on("x86_64")
    own = {ONEDNN: "false", "GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}
    assert tuned_environment(own) == {TUNING: "1"}
    assert tuned_environment({TUNING: "0"}) == {TUNING: "0"}


ACTOR = {"host": "a", "address": "10.0.0.1", "python": "python", "core": "/tfdistr", "port": 1}


@pytest.mark.parametrize(
    "cluster",
    [
        lambda **given: tfdistr.local_cluster(2, warm=False, **given).environment(1),
        lambda **given: tfdistr.ssh_cluster(["a", "b"], **given).environments()[1],
        lambda **given: tfdistr.ray_cluster(1, **given).starts([ACTOR], ["x"], Path("run"))[0]["spec"]["env"],
        lambda **given: tfdistr.slurm_cluster(2, **given).environments()[1],
    ],
    ids=["local", "ssh", "ray", "slurm"],
)
def test_every_cluster_tunes_its_workers_unless_told_not_to(cluster, monkeypatch):
    for name in (TUNING, ONEDNN, "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    tuned = tuned_environment({})
    assert tuned.items() <= cluster().items()
    assert cluster(env={ONEDNN: "0"})[ONEDNN] == "0"
    untuned = cluster(tuning=False)
    assert untuned[TUNING] == "0"
    assert not {ONEDNN, "GLIBC_TUNABLES"} & untuned.keys()
    with pytest.raises(ArgumentError, match="`tuning` must be true or false"):
        cluster(tuning="yes")


def dense() -> keras.Model:
    model = keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


@x86
@pytest.mark.slow(reason="the first step with oneDNN takes long")
@pytest.mark.timeout(200)
def test_workers_are_tuned_and_ignore_an_allocator_that_is_not_there(tmp_path):
    """The other tests run with the variable of the Makefile, which turns oneDNN off."""
    x = np.arange(32, dtype="float32").reshape(16, 2)
    env = {ONEDNN: "1", "LD_PRELOAD": "/nowhere/liballocator.so"}
    fits = [
        tfdistr.distributed_fit(
            dense, x, x[:, :1], batch_size=8, epochs=2, seed=1, verbose=0, run_dir=tmp_path / str(workers),
            cluster=tfdistr.local_cluster(workers, env=env, cores_per_worker=1, warm=workers > 1),
        )
        for workers in (1, 2)
    ]
    assert all(re.fullmatch("oneDNN(, huge pages)?, 1 thread", fit.params["tuning"]) for fit in fits)
    np.testing.assert_allclose(fits[0].history["loss"], fits[1].history["loss"], rtol=1e-5)
    assert "liballocator.so" in (tmp_path / "1" / "logs" / "worker-0.log").read_text()


def run(program: str, **env: str) -> list[str]:
    """The lines that a program prints, or what it warns of, in a process without tuning."""
    without = {name: v for name, v in os.environ.items() if name not in (TUNING, ONEDNN, "GLIBC_TUNABLES")}
    ended = subprocess.run(
        [sys.executable, "-c", program], env={**without, "TF_CPP_MIN_LOG_LEVEL": "2", **env}, text=True,
        capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    return (ended.stdout or ended.stderr).splitlines()


TUNE = "from tfdistr.utils.tuning import describe_tuning, tune_this_process; tune_this_process(); "


@x86
def test_a_process_of_the_user_gets_onednn_if_tensorflow_is_not_loaded_yet():
    assert run(TUNE + "print(describe_tuning())") == ["oneDNN"]
    assert run(TUNE + "print(describe_tuning())", **{ONEDNN: "0"}) == ["no oneDNN, memory kept"]


# A processor on which TensorFlow leaves oneDNN out by itself: the variable is gone when tfdistr looks.
LOADED = f"import os, tensorflow; del os.environ['{ONEDNN}']; import logging, tfdistr; "


@x86
@pytest.mark.parametrize(
    ("exact", "said"), [(False, "2 to 5 times as long"), (True, "differs in the last bits")]
)
def test_a_process_that_has_loaded_tensorflow_without_onednn_says_so_once(exact, said):
    options = "virtual_workers=2" if exact else ""
    call = f"[tfdistr.MultiWorkerMirroredStrategy({options}) for _ in '12']"
    lines = [line for line in run(LOADED + call, **{ONEDNN: "0"}) if "oneDNN" in line]
    assert len(lines) == 1
    assert said in lines[0]
    assert f"Import tfdistr before tensorflow and keras, or set {ONEDNN}=1 before" in lines[0]


@x86
def test_the_import_chooses_the_kernels_that_tensorflow_will_load():
    told = f"import os, {{}}; print(os.environ.get('{ONEDNN}'))"
    assert run(told.format("tfdistr")) == ["1"]
    assert run(told.format("tensorflow, tfdistr")) == ["None"]
    assert run(told.format("tfdistr"), **{TUNING: "0"}) == ["None"]


@x86
def test_workers_without_tuning_inherit_no_choice():
    told = f"""import os, tfdistr
env = tfdistr.local_cluster(1, tuning={{}}).environment(0)
print((os.environ | env).get("{ONEDNN}"))"""
    assert run(told.format(True)) == ["1"]
    assert run(told.format(False)) == ["None"]


def test_a_value_that_tensorflow_ignores_is_described(monkeypatch):
    monkeypatch.setenv(ONEDNN, "yes")
    assert f"(TensorFlow ignores {ONEDNN}=yes)" in tuning.describe_tuning()


def test_memory_stays_with_a_process_that_runs_already():
    """With a low threshold, glibc returns 16 MiB to the system as soon as they are free."""
    program = (
        "import ctypes, resource; c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p\n"
        "from tfdistr.utils import tuning\n"
        "{}\n"
        "def touch():\n"
        "    block = c.malloc(1 << 24); ctypes.memset(block, 1, 1 << 24); c.free(ctypes.c_void_p(block))\n"
        "touch(); before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "for _ in range(5): touch()\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)\n"
    )
    kept = int(run(program.format("tuning._keep_memory()"))[0])
    given_back = int(run(program.format(""), MALLOC_MMAP_THRESHOLD_="131072")[0])
    assert kept < given_back / 2
