"""keras-tuner chooses the model; each trial trains on two workers.

    python examples/keras_tuner_search.py FOLDER

It needs `pip install keras-tuner`. FOLDER gets what keras-tuner writes. A tuner with a run_trial() of its own
may train as it likes: it returns the number that the search makes small.
"""

import sys

import tfdistr

import keras_tuner


def build(values):
    import keras

    layers = keras.layers
    model = keras.Sequential([
        layers.Rescaling(1 / 16), layers.Flatten(), layers.Dense(values["units"], "relu"),
        layers.Dense(10, "softmax"),
    ])  # fmt: skip
    model.compile(
        keras.optimizers.Adam(values["rate"]), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model


class OnWorkers(keras_tuner.GridSearch):
    """Trains each trial by distributed_fit()."""

    def run_trial(self, trial, data, **options):
        # The workers need numbers, and nothing of keras-tuner.
        choices = trial.hyperparameters
        values = {
            "units": choices.Choice("units", [16, 64]),
            "rate": choices.Choice("rate", [0.01]),
        }
        fit = tfdistr.distributed_fit(lambda: build(values), data, **options)
        return fit.history["loss"][-1]


def main(folder: str) -> None:
    tuner = OnWorkers(objective=keras_tuner.Objective("default_objective", "min"), directory=folder)
    tuner.search(
        tfdistr.load_dataset("digits"), cluster=tfdistr.local_cluster(2),
        batch_size=64, epochs=2, seed=1, verbose=0,
    )  # fmt: skip
    for trial in tuner.oracle.get_best_trials(2):
        print(f"units {trial.hyperparameters.get('units')}: loss {trial.score:.3f}")


if __name__ == "__main__":
    main(sys.argv[1])
