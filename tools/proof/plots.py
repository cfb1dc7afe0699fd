"""The plots of the pages, in docs/pictures/: of what `make proof` recorded, and of fits.

.venv/bin/python tools/proof/plots.py        # those of the records; also at the end of `make proof`
.venv/bin/python tools/proof/plots.py fits   # and those that train: of fits and comparisons
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from textwrap import fill

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from parts import ROOT, read

PICTURES = ROOT / "docs" / "pictures"
#: Of a system in the table of `make bench`: examples per second, and (min to max).
_SYSTEM = re.compile(r"(\S.*?)  +([\d,]+) *\( *([\d,]+) to +([\d,]+)\)")

# The same numbers give the same file.
matplotlib.rcParams["svg.hashsalt"] = "tfdistr"
matplotlib.rcParams["svg.fonttype"] = "none"


def speeds() -> dict[str, list[tuple[str, float, float, float]]]:
    """For each network: the systems, their examples per second, the least and the most."""
    found: dict[str, list[tuple[str, float, float, float]]] = {}
    for paragraph in read("speed").paragraphs:
        title, *lines = paragraph.splitlines()
        # Two workers that exchange nothing train no one model.
        systems = [m for line in lines if (m := _SYSTEM.match(line)) and m[1] != "tfdistr, two alone"]
        if systems:
            network = title.split(":")[0].replace("The same", "The seed CNN")
            numbers = [tuple(float(text.replace(",", "")) for text in m.groups()[1:]) for m in systems]
            found[network] = [(m[1], *three) for m, three in zip(systems, numbers, strict=True)]
    return found


def speed() -> Figure:
    """Examples per second of each system: a bar, and the range of the runs as a line."""
    found = speeds()
    rows = sum(len(systems) for systems in found.values())
    drawn = Figure((4.2, 2 + rows / 5), layout="constrained")  # narrow: it fits a phone
    panels = drawn.subplots(len(found), squeeze=False)[:, 0]
    for panel, (network, systems) in zip(panels, found.items(), strict=True):
        names, middle, least, most = zip(*reversed(systems), strict=True)
        errors = [[a - b for a, b in zip(middle, least, strict=True)],
                  [b - a for a, b in zip(middle, most, strict=True)]]  # fmt: skip
        colors = ["#2a6fbb" if "tfdistr" in name else "#9a9a9a" for name in names]
        panel.barh(names, middle, xerr=errors, color=colors, ecolor="#555555")
        panel.set_title(fill(network, 40), fontsize="medium", loc="left")
        panel.tick_params(labelsize="small")
        panel.xaxis.set_major_locator(MaxNLocator(4))
    panel.set_xlabel("examples per second")
    return drawn


def fits() -> dict[str, Figure]:
    """The plots of a fit, of where the time of another went, and of a comparison."""
    import keras

    import tfdistr

    class SlowOnWorker1(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
                time.sleep(0.02)

    def model() -> object:
        from keras import layers

        model = keras.Sequential([
            layers.Rescaling(1 / 16), layers.Conv2D(32, 3, activation="relu"), layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ])  # fmt: skip
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model

    data, test = tfdistr.load_dataset("digits"), tfdistr.load_dataset("digits", "test")
    job = {"validation_data": test, "epochs": 5, "seed": 1, "verbose": 0}
    fit = tfdistr.distributed_fit(model, data, cluster=tfdistr.local_cluster(workers=2), **job)

    late = tfdistr.distributed_fit(
        model, data, cluster=tfdistr.local_cluster(workers=3), callbacks=[SlowOnWorker1()], **job
    )
    strategies = ["one_device", "multi_worker_mirrored", "parameter_server"]
    compared = tfdistr.compare_strategies(model, data, strategies=strategies, workers=[1, 2], **job)
    return {"fit": fit.plot(), "times": late.summary().plot(), "compare": compared.plot()}


def save(figures: dict[str, Figure]) -> None:
    PICTURES.mkdir(exist_ok=True)
    for name, figure in figures.items():
        path = PICTURES / f"{name}.svg"
        figure.savefig(path, metadata={"Date": None}, facecolor="white", bbox_inches="tight")
        path.write_text("".join(line.rstrip() + "\n" for line in path.read_text().splitlines()))


def update(also: tuple[str, ...] = ()) -> None:
    """Draw the plots of the records, and those that train if ``also`` has ``"fits"``."""
    save({"speed": speed()} | (fits() if "fits" in also else {}))


if __name__ == "__main__":
    update(tuple(sys.argv[1:]))
