"""Notebooks: the live display, and the notebook of examples/tutorial, which prints what it shows."""

import re
import time
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from paths import EXAMPLES

LINE = re.compile(r"Epoch \d/3  [\d.]+ s  loss")
CELL = """
import time
import keras
import numpy as np
import tfdistr

def model():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model

slowly = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: time.sleep(0.5))
x = np.ones((32, 2), "float32")
fit = tfdistr.distributed_fit(model, x, x[:, 0], epochs=3, batch_size=8, seed=1, callbacks=[slowly])
"""


class Client(NotebookClient):
    """Knows when each output came."""

    def output(self, outs: list[Any], msg: dict[str, Any], display_id: str, cell_index: int) -> Any:
        came = (time.monotonic(), str(msg["content"]))
        self.came: list[tuple[float, str]] = [*getattr(self, "came", []), came]
        return super().output(outs, msg, display_id, cell_index)


@pytest.mark.usefixtures("with_pandas_once")  # a kernel needs IPython
@pytest.mark.timeout(120)
def test_the_display_is_live_and_short(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    client = Client(notebook, timeout=100, kernel_name="python3", resources={"metadata": {"path": tmp_path}})
    client.execute()
    epochs = [when for when, content in client.came if LINE.search(content)]
    assert len(epochs) == 3
    assert epochs[-1] - epochs[0] > 0.5  # while it trained, and not all at its end

    (cell,) = notebook.cells
    shown = [output["data"]["text/plain"] for output in cell.outputs]
    assert sum("Epoch" in text for text in shown) == 3  # the bars are gone


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
