"""The notebook of examples/tutorial: its cells run in order, and print what the notebook shows."""

import re

import nbformat
import pytest
from nbclient import NotebookClient
from paths import EXAMPLES


def printed(notebook: nbformat.NotebookNode) -> list[str]:
    """What each cell of code has printed, without what TensorFlow writes to stderr."""
    texts = []
    for cell in notebook.cells:
        outputs = [output for output in cell.get("outputs", []) if output.get("name") != "stderr"]
        texts.append("".join(out["text"] if "text" in out else out["data"]["text/plain"] for out in outputs))
    return texts


@pytest.mark.slow(reason="runs a whole notebook")
@pytest.mark.usefixtures("with_pandas_once")  # a kernel needs IPython
@pytest.mark.timeout(300)
def test_the_notebook_prints_what_it_shows(tmp_path):
    shown = nbformat.read(EXAMPLES / "tutorial/tutorial.ipynb", as_version=4)
    run = nbformat.read(EXAMPLES / "tutorial/tutorial.ipynb", as_version=4)
    for cell in run.cells:
        cell.pop("outputs", None)
    resources = {"metadata": {"path": tmp_path}}
    NotebookClient(run, timeout=280, kernel_name="python3", resources=resources).execute()
    number = re.compile(r"\d+\.\d+")
    assert any("Difference of the weights: 0.0\n" in text for text in printed(run))
    for text, expected in zip(printed(run), printed(shown), strict=True):
        assert number.sub("", text) == number.sub("", expected)
        # On another processor other kernels may train; what is shown must be about right there.
        found, there = (list(map(float, number.findall(each))) for each in (text, expected))
        assert found == pytest.approx(there, abs=0.05)
