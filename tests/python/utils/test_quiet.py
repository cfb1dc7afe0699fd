"""TensorFlow's start messages, shown by a package of its name."""

import os
import subprocess
import sys

import pytest

_MESSAGES = """
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795978607.666691     806 port.cc:153] oneDNN custom operations are on.
To enable the following instructions: AVX2, rebuild TensorFlow with the appropriate compiler flags.
E0000 00:00:1795978618.160432     806 cuda_platform.cc:52] failed call
The TensorFlow library was compiled to use AVX instructions, but these are not available.
"""
_SHOWN = _MESSAGES.splitlines()[-2:]


def lines_of(tmp_path, end: str, **env: str) -> list[str]:
    package = tmp_path / "tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text(f"import os\nos.write(2, {_MESSAGES.lstrip().encode()!r})\n{end}")
    code = (
        "from tfdistr.utils.quiet import quiet_tensorflow; quiet_tensorflow(); quiet_tensorflow()\n"
        "import tensorflow, os\nos.write(2, b'I0000 1:1 1 after')"
    )
    known = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **env}
    known["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{known.get('PYTHONPATH', '')}"
    done = subprocess.run([sys.executable, "-c", code], env=known, capture_output=True, text=True)
    return done.stderr.splitlines()


def test_only_start_messages_are_dropped_and_only_while_tensorflow_is_loaded(tmp_path):
    assert lines_of(tmp_path, "") == [*_SHOWN, "I0000 1:1 1 after"]


def test_the_last_words_of_a_process_that_aborts_are_shown(tmp_path):
    assert lines_of(tmp_path, "os.abort()")[:2] == _SHOWN


@pytest.mark.parametrize("level", ["0", "1"])
def test_a_user_who_wants_messages_has_them(tmp_path, level):
    found = lines_of(tmp_path, "", TF_CPP_MIN_LOG_LEVEL=level)
    assert found == [*_MESSAGES.strip().splitlines(), "I0000 1:1 1 after"]
