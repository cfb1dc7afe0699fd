"""Each block of code in the documents is run and prints what is shown, or its page says why it is not run."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import doc_blocks
import pytest
from doc_blocks import OTHERS, PAGES, PROGRAMS, Block, blocks, difference
from paths import ROOT

from tfdistr import errors

ALL = [block for page in PAGES for block in blocks(page)]
RUN = [block for block in ALL if block.mark == "run"]


def test_each_block_says_what_becomes_of_it():
    for block in ALL:
        assert block.language in (*PROGRAMS, *OTHERS), f"{block}: no language, or one that no rule knows"
        if block.language in PROGRAMS:
            assert block.mark, f"{block}: a comment above must say whether it is run, see doc_blocks.py"
            assert block.mark == "run" or block.detail, f"{block}: no reason, or no test"
        if block.mark == "run by":
            assert block.page.name in (ROOT / block.detail).read_text(), (
                f"{block}: {block.detail} does not read it"
            )
    assert len(RUN) > 20


def test_each_class_of_errors_has_an_example_on_its_page():
    pages = [ROOT / "docs" / "errors.md", ROOT / "docs" / "job-errors.md"]
    text = "\n".join(page.read_text() for page in pages)
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    public = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and kind.__module__ == errors.__name__
    }
    assert sections.keys() == public.keys()
    for name, kind in public.items():
        text = sections[name]
        assert f"In R `{_in_r(kind)}`" in text
        assert "<!-- run" in text
        assert "*What to do*: " in text
        # JobStoppedError ends a script by its exit status, so its name is not printed.
        shown = [
            block.output for page in pages for block in blocks(page) if block.code in text and block.output
        ]
        assert any(name in output for output in shown) or name in ("JobStoppedError", "TfdistrError")


def _in_r(kind: type) -> str:
    """The class of the condition that an error or a warning is in R."""
    if issubclass(kind, Warning):
        return "tfdistr_warning_batch_loss" if kind.__name__ == "BatchLossWarning" else "tfdistr_warning"
    return "tfdistr_error" if kind.kind == "error" else f"tfdistr_error_{kind.kind}"


def test_blocks_of_python_import_tfdistr_before_tensorflow_and_keras():
    """It chooses the kernels that TensorFlow loads."""
    for block in ALL:
        if block.language == "python":
            compile(block.code, str(block), "exec")
        imported = re.findall(r"^(?:import|from) (.+)", block.code, re.MULTILINE)
        names = re.findall(r"\b(tfdistr|tensorflow|keras)\b", " ".join(imported))
        assert block.language != "python" or "tfdistr" not in names[1:], block


@pytest.mark.skipif(not shutil.which("Rscript"), reason="no R")
def test_blocks_of_r_parse(tmp_path):
    for number, block in enumerate(block for block in ALL if block.language == "r"):
        (tmp_path / f"{number}.R").write_text(f"# {block}\n{block.code}")
    program = "for (file in list.files(commandArgs(TRUE), full.names = TRUE)) parse(file)"
    ended = subprocess.run(["Rscript", "--vanilla", "-e", program, tmp_path], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow(reason="runs each block in Python or R; most of them train")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("block", RUN, ids=str)
def test_it_prints_what_the_page_shows(block: Block, request: pytest.FixtureRequest):
    lacking = doc_blocks.lacks(block)
    if lacking:
        pytest.skip(f"it needs {lacking}")
    if "import datasets" in block.code:  # of Hugging Face, which imports pandas
        request.getfixturevalue("with_pandas_once")
    with tempfile.TemporaryDirectory(prefix="doc-") as folder:  # short, for the paths of sockets
        printed = doc_blocks.run(block, Path(folder))
    if block.output is None:
        assert "Error" not in printed, printed[-3000:]
    else:
        assert difference(block.output, printed) is None, difference(block.output, printed)
