"""What a run reads is the user's own: who could write to it could run code."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import tfdistr
from tfdistr.clusters.guard import MARK, SPEC
from tfdistr.clusters.guard import __file__ as guard
from tfdistr.clusters.local.local_cluster import local_cluster
from tfdistr.errors import ArgumentError, CheckpointError, TfdistrError
from tfdistr.fork_server import servers
from tfdistr.jobs.result_files import load_training
from tfdistr.jobs.run_dir import open_run_dir, temporary_run_dir
from tfdistr.schemas import load_schema
from tfdistr.utils.pickles import load_value, save_value
from tfdistr.utils.trusted_files import check_own

pytestmark = pytest.mark.timeout(60)


def foreign(folder: Path, kind: str) -> str:
    """Make a folder one to which others can write, and say why it is that then."""
    if kind == "owner":
        os.chown(folder, 65534, 65534)
        return "it belongs to the user with id 65534, and this process to id 0"
    mode = {"group": 0o770, "all": 0o707}[kind]
    folder.chmod(mode)
    return f"others can write to it (mode {mode:o})"


KINDS = [
    "group",
    "all",
    pytest.param("owner", marks=pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_directory_of_others_is_refused(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o755)
    with open_run_dir(folder) as opened:
        assert opened.stat().st_mode & 0o777 == 0o700
    reason = foreign(folder, kind)
    with pytest.raises(ArgumentError) as caught:
        tfdistr.distributed_fit(lambda: None, [1.0], [1.0], cluster=local_cluster(1), run_dir=folder)
    assert caught.value.received == f"{folder}: {reason}"
    assert not list(folder.iterdir())


@pytest.mark.parametrize("kind", KINDS)
def test_pickles_and_results_of_others_are_not_read(tmp_path: Path, kind: str) -> None:
    save_value({"a": 1}, tmp_path, "value")
    training = load_schema("training")["examples"][0] | {"history": {"loss": [1.0]}}
    (tmp_path / "training.json").write_text(json.dumps(training))
    assert load_value(tmp_path, "value") == {"a": 1}
    assert load_training(tmp_path)["history"] == {"loss": [1.0]}
    reason = foreign(tmp_path, kind)
    for read in (lambda: load_value(tmp_path, "value"), lambda: load_training(tmp_path)["history"]):
        with pytest.raises(TfdistrError, match="A run directory must be your own, and nobody") as caught:
            read()
        assert caught.value.received == f"{tmp_path}: {reason}"


def test_nor_a_file_of_others_in_a_folder_of_the_user(tmp_path: Path) -> None:
    save_value([1], tmp_path, "value")
    file = tmp_path / "value.pkl"
    file.chmod(0o620)
    with pytest.raises(TfdistrError, match=r"others can write to it \(mode 620\)"):
        load_value(tmp_path, "value")
    file.unlink()
    with pytest.raises(TfdistrError, match=r"value\.pkl: No such file or directory\nFix: Do not change"):
        load_value(tmp_path, "value")
    with pytest.raises(TfdistrError, match=r"nowhere/file: No such file or directory"):
        check_own(tmp_path / "nowhere" / "file")


def test_a_rank_runs_nothing_from_a_folder_of_others(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    spec = {"command": ["/bin/touch", str(tmp_path / "made")], "environments": [{}]}
    (tmp_path / SPEC).write_text(json.dumps(spec))
    tmp_path.chmod(0o770)
    ended = subprocess.run(
        [sys.executable, "-I", "-S", guard, "rank", str(tmp_path)], env=os.environ | {"PMI_RANK": "0"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 1
    said = json.loads(ended.stdout.removeprefix(MARK))
    assert said["failed"] == f"others can write to {tmp_path}, or it is not this user's"
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(("mode", "refused"), [(0o777, True), (0o1777, False), (0o775, False)])
def test_a_folder_above_the_run_directory_to_which_all_users_can_write(tmp_path, mode, refused):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    wanted = shared / "mine" / "run"
    if not refused:
        with open_run_dir(wanted) as folder:
            assert folder == wanted
        return
    with pytest.raises(ArgumentError) as caught, open_run_dir(wanted):
        pass
    assert caught.value.received == f"{wanted}, in {shared}, to which all users can write (mode 777)"
    assert caught.value.fix.startswith(f"Run: chmod o-w {shared}.")
    assert not wanted.parent.exists()  # nothing was written


def test_a_folder_for_temporary_files_that_all_users_can_replace(tmp_path, monkeypatch):
    tmp_path.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for make in (temporary_run_dir, servers._make_folder):
        with pytest.raises(ArgumentError) as caught:
            make()
        assert caught.value.message.startswith("The folder for temporary files must not be replaceable by")
        assert caught.value.fix.startswith(f"Run: chmod +t {tmp_path}. Or set TMPDIR")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a\0b", "embedded null byte"),
        ("n" * 300, "File name too long"),
        ("dangling", "File exists"),
        ("file/run", "Not a directory"),
        ("/proc/run", "No such file or directory"),
    ],
)
def test_a_run_directory_that_cannot_be_made(tmp_path, name, reason):
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    rule = "that this process can create and write to"
    with pytest.raises(ArgumentError, match=rule) as caught, open_run_dir(tmp_path / name):
        pass
    assert caught.value.received == f"{str(tmp_path / name)!r}: {reason}"
    assert not (tmp_path / "nowhere").exists()


def test_a_run_directory_on_a_disk_that_is_read_only_now(small_disk):
    with open_run_dir(small_disk.path / "run") as folder:
        pass
    (folder / "run.json").touch()
    small_disk.mount("remount,ro")
    for wanted in (folder, small_disk.path / "other"):
        rule = "that this process can create and write to"
        with pytest.raises(ArgumentError, match=rule) as caught, open_run_dir(wanted, resume=True):
            pass
        assert caught.value.received == f"{str(wanted)!r}: Read-only file system"
    small_disk.mount("remount,rw")
    with open_run_dir(folder, resume=True) as again:
        assert again == folder


def test_no_temporary_run_directory_can_be_made(small_disk, monkeypatch):
    small_disk.mount("remount,ro")
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk.path))
    with pytest.raises(CheckpointError) as caught:
        temporary_run_dir()
    assert caught.value.message == "A temporary run directory could not be written: Read-only file system."
    assert caught.value.received.startswith(f"{small_disk.path}, and ")
