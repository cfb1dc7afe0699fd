"""Ray Tune chooses the learning rate; each trial trains on two workers.

    python examples/ray_tune.py [ADDRESS]

It needs `pip install 'tfdistr[ray]' 'ray[tune]'`. Without ADDRESS, Ray starts on this machine. The first
bundle of the placement group is for the trial itself. ray_cluster() takes the others for the workers.
"""

import sys
import tempfile

import tfdistr

import ray
from ray import tune

WORKERS = 2


def trial(config: dict) -> None:
    def model():
        import keras

        layers = keras.layers
        made = keras.Sequential([layers.Rescaling(1 / 16), layers.Flatten(), layers.Dense(10, "softmax")])
        made.compile(
            keras.optimizers.Adam(config["rate"]), "sparse_categorical_crossentropy", metrics=["accuracy"]
        )
        return made

    fit = tfdistr.distributed_fit(
        model, tfdistr.load_dataset("digits"), cluster=tfdistr.ray_cluster(WORKERS),
        batch_size=64, epochs=2, seed=1, verbose=0,
    )  # fmt: skip
    tune.report({"loss": fit.history["loss"][-1], "workers": len(fit.workers)})


def main(address: str | None = None) -> None:
    # Two trials of three CPUs do not fit at once on a small machine: the second waits.
    ray.init(address, num_cpus=None if address else 1 + WORKERS, log_to_driver=False)
    places = tune.PlacementGroupFactory([{"CPU": 1}] + [{"CPU": 1}] * WORKERS, strategy="SPREAD")
    with tempfile.TemporaryDirectory() as results:
        tuner = tune.Tuner(
            tune.with_resources(trial, places),
            param_space={"rate": tune.grid_search([0.001, 0.1])},
            tune_config=tune.TuneConfig(metric="loss", mode="min"),
            run_config=tune.RunConfig(storage_path=results, verbose=0),
        )
        best = tuner.fit().get_best_result()
    found = best.metrics
    print(f"Best: rate {best.config['rate']}, loss {found['loss']:.3f}, {found['workers']} workers")
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
