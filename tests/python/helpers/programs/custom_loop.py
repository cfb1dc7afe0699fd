"""What a user of the strategy does without Keras's fit, as one worker of two.

Usage: custom_loop.py FOLDER   (writes FOLDER/<index>.json: what each part of the strategy gave here)
"""

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tfdistr

strategy = tfdistr.MultiWorkerMirroredStrategy(start_timeout=60)

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402
from heard import refused  # noqa: E402

FOLDER, INDEX = Path(sys.argv[1]), strategy.worker_index
SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN
Policy = tf.data.experimental.AutoShardPolicy
found: dict[str, object] = {"workers": strategy.num_workers, "index": INDEX, "chief": strategy.is_chief}


def plain(value: object) -> object:
    return tf.nest.map_structure(lambda part: np.asarray(part).tolist(), value)


def values() -> dict[str, object]:
    """Worker 0 has 1, [0, 1] and one row, worker 1 has 2, [2, 3] and two rows."""
    one = tf.constant(INDEX + 1.0)
    two = tf.constant([2.0 * INDEX, 2.0 * INDEX + 1])
    rows = tf.fill([INDEX + 1, 2], INDEX)
    given = {
        "sum": strategy.reduce(SUM, one, axis=None),
        "sum by name": strategy.reduce("SUM", one, axis=None),
        "mean": strategy.reduce(MEAN, two, axis=None),
        "sum of rows": strategy.reduce(SUM, two, axis=0),
        "mean of unequal rows": strategy.reduce(MEAN, tf.cast(rows, tf.float32), axis=0),
        "nested": strategy.reduce(SUM, {"one": one, "more": (two, one)}, axis=None),
        "gathered": strategy.gather(rows, axis=0),
        "gathered columns": strategy.gather(tf.transpose(rows), axis=1),
    }

    @tf.function
    def replica() -> dict[str, tf.Tensor]:
        context = tf.distribute.get_replica_context()
        return {
            "id": context.replica_id_in_sync_group,
            "all-reduced": context.all_reduce("SUM", one),
            "all-reduced nest": context.all_reduce("MEAN", [two, one]),
            "all-gathered": context.all_gather(rows, axis=0),
        }

    return plain(given | strategy.run(replica))


def from_the_chief() -> object:
    """A variable has the first value that the chief gave it."""
    with strategy.scope():
        variable = tf.Variable(10.0 + INDEX)
        total = tf.Variable(0.0, synchronization=tf.VariableSynchronization.ON_READ,
                            aggregation=tf.VariableAggregation.SUM)  # fmt: skip
    strategy.run(lambda: total.assign_add(INDEX + 1.0))
    return plain([variable.read_value(), total.read_value(), *strategy.reduce(SUM, [total], axis=None)])


class Learner(keras.Sequential):
    """A model with a step of its own, which scales the loss as TensorFlow teaches."""

    def learn(self, data: tuple, size: int) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = keras.losses.mean_squared_error(data[1], self(data[0]))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=size)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return loss


def learner() -> Learner:
    model = Learner([keras.Input((3,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
    model.set_weights([np.full(weight.shape, 0.1, "float32") for weight in model.get_weights()])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9))
    return model


def trained() -> object:
    """A loop of one's own with and without the strategy, over an epoch of uneven batches."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(21, 3)).astype("float32"), rng.normal(size=(21, 1)).astype("float32")
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
    with strategy.scope():
        many = learner()
    one = learner()

    @tf.function
    def step(data: tuple, size: int) -> tf.Tensor:
        return strategy.reduce(SUM, strategy.run(many.learn, args=(data, size)), axis=None)

    distributed = strategy.experimental_distribute_dataset(batches)
    losses = [step(data, size) for data, size in zip(distributed, (8, 8, 5), strict=True)]
    alone = [one.learn(data, size) for data, size in zip(batches, (8, 8, 5), strict=True)]
    pairs = zip(many.get_weights(), one.get_weights(), strict=True)
    difference = max(float(np.abs(mine - other).max()) for mine, other in pairs)
    return {"difference": difference, "losses": plain(losses), "losses of one": plain(alone)}


def mean_of_rows() -> object:
    """How far a weight moves from 0 to 1 by the mean over a worker's rows, and what is said of that."""
    with strategy.scope():
        weight, optimizer = keras.Variable(0.0), keras.optimizers.SGD(0.1)
        optimizer.build([weight])

    def moved(mean: Callable[[tf.Tensor], tf.Tensor]) -> float:
        @tf.function
        def step() -> None:
            def replica() -> None:
                with tf.GradientTape() as tape:
                    loss = mean(tf.square(weight - tf.ones([2])))
                optimizer.apply(tape.gradient(loss, [weight]), [weight])

            strategy.run(replica)

        weight.assign(0.0)
        step()
        return round(float(weight), 6)

    with warnings.catch_warnings(record=True) as caught:
        moves = [moved(mean) for mean in (tfdistr.average_loss, tf.reduce_mean, tf.reduce_mean)]
    return {"moves": moves, "said": [[str(w.message), Path(w.filename).name] for w in caught]}


def named() -> object:
    """Functions with the name of Keras's step, and the step of a model, with the batch in several places."""

    def train_step(data: tf.Tensor | None = None) -> tf.Tensor:
        return tf.constant(-1.0) if data is None else tf.reduce_sum(data)

    results = [strategy.run(train_step), strategy.run(train_step, kwargs={"data": tf.ones([2])})]
    strategy.run(train_step, args=(tf.constant([np.nan]),))
    watched = strategy.extended.checks.loss.inputs.describe()

    def model() -> keras.Model:
        made = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
        made.compile(keras.optimizers.SGD(0.1), "mse")
        return made

    with strategy.scope():
        many = model()
    one, x = model(), tf.range(5.0)[:, tf.newaxis]
    own = x[3 * INDEX : 3 + 2 * INDEX]
    strategy.run(many.train_step, kwargs={"data": (own, 2 * own)})
    one.train_step((x, 2 * x))
    kernels = plain([many.weights[0], one.weights[0]])
    return {"results": plain(results), "watched": watched, "kernels": kernels}


def records() -> list[str]:
    """Two files with the ids 0 to 5 and 6 to 11."""
    paths = [str(FOLDER / f"{number}.tfrecord") for number in range(2)]
    if strategy.is_chief:
        for number, path in enumerate(paths):
            with tf.io.TFRecordWriter(path) as writer:
                for i in range(6 * number, 6 * number + 6):
                    writer.write(str(i).encode())
    strategy.barrier("files", 60)
    return paths


def ids(dataset: tf.data.Dataset, policy: Policy | None) -> list[int]:
    if policy is not None:
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = policy
        dataset = dataset.with_options(options)
    dataset = dataset.map(lambda record: tf.strings.to_number(record, tf.int64)).batch(4)
    local = strategy.experimental_local_results
    batches = strategy.experimental_distribute_dataset(dataset)
    return [i for batch in batches for part in local(batch) for i in part.numpy().tolist()]


def split() -> object:
    paths = records()
    files = tf.data.TFRecordDataset
    given: dict[str, object] = {
        "default": ids(files(paths[:1]), None),
        "FILE": ids(files(paths), Policy.FILE),
        "DATA": ids(files(paths), Policy.DATA),
        "OFF": ids(files(paths), Policy.OFF),
        "HINT": ids(
            tf.data.Dataset.from_tensor_slices(paths)
            .shard(tf.data.experimental.SHARD_HINT, tf.data.experimental.SHARD_HINT)
            .interleave(files),
            Policy.HINT,
        ),
        "unseeded": ids(files(paths).shuffle(12), None),
    }
    return given


def orders() -> object:
    """What shuffles give: with the seed that the workers drew, and with one that the user set."""

    def shuffled() -> dict[str, list[int]]:
        numbers = tf.data.Dataset.range(12)
        pipelines = {
            "seed=1": numbers.shuffle(12, seed=1),
            "no seed": numbers.shuffle(12),
            "inside": tf.data.Dataset.range(1).flat_map(lambda _: tf.data.Dataset.range(12).shuffle(12)),
        }
        return {name: rows(dataset.batch(4)) for name, dataset in pipelines.items()}

    def rows(dataset: tf.data.Dataset) -> list[int]:
        local = strategy.experimental_distribute_dataset(dataset)
        return [number for batch in local for number in batch.numpy().tolist()]

    drawn = shuffled()
    keras.utils.set_random_seed(5)
    return {"drawn": drawn, "set": shuffled()}


def fit_on_files() -> object:
    """Keras's fit, where TensorFlow splits the dataset by files."""

    def example(record: tf.Tensor) -> tuple:
        number = tf.strings.to_number(record)
        return {"a": number[tf.newaxis]}, number

    dataset = tf.data.TFRecordDataset([str(FOLDER / f"{n}.tfrecord") for n in range(2)]).map(example)
    with strategy.scope():
        inputs = {"a": keras.Input((1,), name="a")}
        model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="zeros")(inputs["a"]))
        model.compile(keras.optimizers.SGD(0.0), "mse")
    dataset = tfdistr.auto_shard(dataset.batch(4), 2, "file")
    return model.fit(dataset, epochs=2, verbose=0, shuffle=False).history["loss"]


def gathers() -> dict[str, object]:
    """What gather() gives where no step of Keras runs."""
    with strategy.scope():
        in_scope = refused(lambda: tfdistr.gather(tf.ones([1, 1])))[1:3]
    in_loop = refused(lambda: strategy.run(lambda: tfdistr.gather(tf.ones([1, 1]))))[1:3]
    return {"scope": in_scope, "loop": in_loop, "outside": plain(tfdistr.gather(tf.fill([1, 1], 5.0)))}


for part in (gathers, values, from_the_chief, trained, mean_of_rows, named, split, orders, fit_on_files):
    found[part.__name__] = part()
if INDEX == 0:
    try:
        strategy.barrier("alone", 1.5)
    except tfdistr.ClusterStartError as error:
        found["barrier"] = str(error)
(FOLDER / f"{INDEX}.json").write_text(json.dumps(found))
