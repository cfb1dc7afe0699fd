"""Functions of R files in jobs of Python. The workers are R processes."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from r_functions import PYTHON_MODEL, R_MODEL, needs_r

import tfdistr
from tfdistr.errors import ArgumentError, WorkerFailedError
from tfdistr.r.functions import RFunction, rscript
from tfdistr.r.session import start_r
from tfdistr.training.job_arguments import make_job
from tfdistr.utils.function_files import digest_of

IMAGES, LABELS = tfdistr.load_dataset("digits", "test").arrays()
DATA = IMAGES[:200], LABELS[:200]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.R"
    path.write_text(R_MODEL)
    return path


def python_model():
    made: dict[str, object] = {}
    exec(PYTHON_MODEL, made)
    return made["build"]()


def message(call) -> str:
    with pytest.raises(ArgumentError) as raised:
        call()
    return str(raised.value)


def check_same(one, other) -> None:
    for mine, theirs in zip(one.model.get_weights(), other.model.get_weights(), strict=True):
        assert np.array_equal(mine, theirs)
    assert one.history == other.history


@needs_r
def test_a_function_is_its_file_and_its_name(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    function = tfdistr.r_function("model.R", "build")
    assert (function.file, function.name, function.required) == (str(file), "build", ())
    assert pickle.loads(pickle.dumps(function)) == function
    assert "rpy2" not in sys.modules


@pytest.mark.parametrize("path", ["nothing.R", "."])
def test_the_file_must_be_there(tmp_path, path):
    what = "a folder" if path == "." else "no such file"
    received = os.path.abspath(tmp_path / path)
    assert f"Received: {received}: {what}" in message(lambda: tfdistr.r_function(tmp_path / path, "build"))


def test_the_file_must_be_a_path():
    assert "Received: a number (3)" in message(lambda: tfdistr.r_function(3, "build"))
    assert "Received: a text ('')" in message(lambda: tfdistr.r_function("", "build"))


def test_the_name_must_be_text(file):
    assert "Received: a number (3)" in message(lambda: tfdistr.r_function(file, 3))


@needs_r
def test_r_must_be_able_to_parse_the_file(file):
    file.write_text("build <- function() {\n  1 +\n}\n")
    said = message(lambda: tfdistr.r_function(file, "build"))
    assert f"Received: {file}:3:1: unexpected '}}'\n" in said


@needs_r
@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("other <- function() 1; also <- \\(x) x", "makes the functions 'other', 'also'"),
        ("if (TRUE) build = 'text'", "makes a value that is no function"),
    ],
)
def test_the_file_must_make_the_function(file, code, found):
    file.write_text(code)
    assert f"Received: 'build', where {file} {found}" in message(lambda: tfdistr.r_function(file, "build"))


@needs_r
@pytest.mark.parametrize("code", ["(function() 1) -> build", "base::source('other.R')"])
def test_what_parsing_cannot_know_is_left_to_the_worker(file, code):
    file.write_text(code)
    assert tfdistr.r_function(file, "build").required == ()


@needs_r
def test_a_model_function_has_no_arguments(file):
    function = tfdistr.r_function(file, "needs")
    assert f"Received: 'needs' of {file}, which needs 'units'" in message(
        lambda: make_job(function, *DATA, num_workers=1)
    )


def test_without_r(file, monkeypatch, tmp_path):
    monkeypatch.delenv("R_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Received: no R_HOME, and no Rscript on PATH" in message(lambda: tfdistr.r_function(file, "build"))
    monkeypatch.setenv("R_HOME", str(tmp_path))
    said = message(lambda: tfdistr.r_function(file, "build"))
    assert f"Received: no {tmp_path}/bin/Rscript, where R_HOME is {tmp_path}\n" in said


def fake_r(folder: Path, monkeypatch, script: str) -> str:
    """An R that does what a shell script does."""
    program = folder / "bin" / "Rscript"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("R_HOME", str(folder))
    assert rscript() == str(program)
    return str(program)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'tfdistr: version '", "Received: none in the libraries of {r}\n"),
        ("echo 'tfdistr: version 0.0.9'", "Received: 0.0.9, in the libraries of {r}\n"),
        ("echo 'Error: no libR.so' >&2; exit 3", "Received: {r}: Error: no libR.so\nFix: See: {r} -e "),
        ("exit 0", "Received: {r}: it says nothing\n"),
    ],
)
def test_an_r_that_cannot_be_used(file, tmp_path, monkeypatch, script, said):
    program = fake_r(tmp_path, monkeypatch, script)
    assert said.format(r=program) in message(lambda: tfdistr.r_function(file, "build"))


def test_the_file_must_stay_as_it_is(file):
    function = RFunction(str(file), "build", "another hash")
    changed = message(function.check_file)
    file.unlink()
    gone = message(function.check_file)
    assert f"Received: {file}, which has changed since 'build' was named" in changed
    assert f"Received: {file}: No such file or directory" in gone


def test_without_rpy2(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "rpy2.rinterface", None)
    said = message(RFunction(str(file), "build", digest_of(file)))
    assert "\nReceived: ModuleNotFoundError: " in said


def test_with_an_r_that_rpy2_cannot_use(monkeypatch):
    def no_package(code):
        raise RuntimeError("Error in loadNamespace(x):\n  there is no package called 'tfdistr'\n")

    fakes = {
        "rpy2": SimpleNamespace(),
        "rpy2.rinterface": SimpleNamespace(endr=print),
        "rpy2.robjects": SimpleNamespace(r=no_package),
    }
    for name, module in fakes.items():
        monkeypatch.setitem(sys.modules, name, module)
    fakes["rpy2"].rinterface, fakes["rpy2"].robjects = fakes["rpy2.rinterface"], fakes["rpy2.robjects"]
    assert "Received: there is no package called 'tfdistr'" in message(start_r)


def test_workers_of_parameter_servers_read_no_data_of_r(file):
    data = RFunction(str(file), "data", "")
    call = tfdistr.distributed_fit
    cluster = tfdistr.local_cluster(1, ps=1)
    said = message(lambda: call(python_model, data, strategy="parameter_server", cluster=cluster))
    assert "Received: an R function" in said


@needs_r
def test_the_bits_are_those_of_the_same_model_in_python(file):
    cluster = tfdistr.local_cluster(2)
    build = tfdistr.r_function(file, "build")
    in_r = tfdistr.distributed_fit(
        build, *DATA, cluster=cluster, seed=5, epochs=2, callbacks=tfdistr.r_function(file, "callbacks")
    )
    in_python = tfdistr.distributed_fit(python_model, *DATA, cluster=cluster, seed=5, epochs=2)
    check_same(in_r, in_python)
    logs = [Path(worker["log"]).read_text() for worker in in_r.workers]
    drawn = [[line for line in log.splitlines() if line.startswith("R saw epoch")] for log in logs]
    assert len(drawn[0]) == 2
    assert drawn[0] == drawn[1], "the workers have the same random numbers of R"
    numbers = in_r.evaluate(IMAGES, LABELS)
    assert numbers == in_python.evaluate(IMAGES, LABELS)
    assert np.array_equal(in_r.predict(IMAGES), in_python.predict(IMAGES))
    assert "rpy2" not in sys.modules, "Keras can make this model without R"
    saved = pickle.dumps(in_r)
    assert pickle.loads(saved)._trained.recipe == build
    file.write_text(f"{R_MODEL}\n# changed")
    restored = pickle.loads(saved)
    assert "which has changed since 'build' was named" in message(lambda: restored.model)
    assert restored.history == in_r.history


@needs_r
@pytest.mark.parametrize("folder", ["run", "run with spaces"])
def test_an_error_in_a_worker_has_its_r_calls(file, folder):
    file.write_text(f"{R_MODEL}\nbuild <- function() {{ units <- fails(); units }}")
    with pytest.raises(WorkerFailedError) as raised:
        tfdistr.distributed_fit(
            tfdistr.r_function(file, "build"), *DATA, cluster=tfdistr.local_cluster(1),
            run_dir=file.parent / folder,
        )  # fmt: skip
    assert not (file.parent / folder / "tmp").exists()
    assert "simpleError in fails() (model.R#22): no units {x} of 50%" in str(raised.value)
    assert "fails()" in raised.value.traceback.partition("R call stack")[2]


@needs_r
def test_an_error_of_the_file_is_one_of_the_worker(file):
    file.write_text("stop('not today')\nbuild <- function() 1")
    with pytest.raises(WorkerFailedError, match="not today"):
        tfdistr.distributed_fit(tfdistr.r_function(file, "build"), *DATA, cluster=tfdistr.local_cluster(1))


IN_ONE_PROCESS = f"""
import pickle, sys
import numpy as np
import tfdistr

file, images, labels = sys.argv[1], *tfdistr.load_dataset("digits", "test").arrays()
{PYTHON_MODEL}
if __name__ == "__main__":
    here = tfdistr.distributed_fit(tfdistr.r_function(file, "build"), images, labels, seed=5)
    mine = tfdistr.distributed_fit(build, images, labels, seed=5)
    for one, other in zip(here.model.get_weights(), mine.model.get_weights(), strict=True):
        assert np.array_equal(one, other)
    assert here.history == mine.history
    # Its data comes from R, as a generator of R makes it: a batch at each call.
    batches = tfdistr.r_function(file, "batches")
    assert tfdistr.distributed_fit(build, batches, batch_size=None, steps_per_epoch=3).history["loss"]
    # Each layer is where a function of R places it.
    how = {{"strategy": tfdistr.model_parallel(tfdistr.r_function(file, "place"))}}
    placed = tfdistr.distributed_fit(build, images, labels, seed=5, **how)
    assert placed.history.keys() == mine.history.keys()
    restored = pickle.loads(pickle.dumps(here))
    assert np.array_equal(restored.predict(images[:9]), here.predict(images[:9]))
    try:
        tfdistr.distributed_fit(tfdistr.r_function(file, "fails"), images, labels)
    except RuntimeError as error:
        assert str(error) == "no units {{x}} of 50%", error
        note = error.__notes__[0]
        assert note.startswith("R error of class simpleError in fails()\\nR call stack"), note
    # What R has sourced stays, as the fit was made with it.
    open(file, "a").write("# changed")
    assert np.array_equal(pickle.loads(pickle.dumps(here)).predict(images[:9]), here.predict(images[:9]))
    print("done")
"""


@pytest.mark.slow(reason="processes load R, Python and TensorFlow")
@needs_r
def test_r_in_this_process(file, tmp_path):
    file.write_text(
        f"{R_MODEL}\nbatches <- function() list(array(1, c(4, 8, 8, 1)), array(1L, 4))\n"
        "place <- function(layer) if (startsWith(layer$name, 'dense')) 'cpu:0'\n"
    )
    program = tmp_path / "program.py"
    program.write_text(IN_ONE_PROCESS)
    ended = subprocess.run(
        [os.path.abspath(sys.executable), program, file], capture_output=True, text=True, timeout=240
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-1] == "done"
    assert "extern" not in ended.stderr, "nothing calls R at the end of Python"
