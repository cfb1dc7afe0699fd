"""Two machines, a chief and a worker: the same script on each, started with a TF_CONFIG of its own.

    .venv/bin/python examples/two_machines/task.py MODEL_FILE

MODEL_FILE (such as /shared/digits.keras) is in a folder that both machines see. The lines to run before it,
one for each machine, are printed by

    .venv/bin/python -c 'import tfdistr; print(tfdistr.tf_config(chief="a:2222", worker=["b:2222"]))'

The chief alone saves the model; both then load it and evaluate it together. Each prints its own line:

    chief 0 of 2 tasks: loss 0.3620, accuracy 0.8917
    worker 0 of 2 tasks: loss 0.3620, accuracy 0.8917

With worker=["a:2222", "b:2222"] the first worker is the chief, and they are "worker 0" and "worker 1".
Without TF_CONFIG one process does it all. The numbers are the same.
"""

import sys

import tfdistr

import keras

strategy = tfdistr.make_strategy()  # before anything else uses TensorFlow
keras.utils.set_random_seed(1)  # the same weights and order of images as without TF_CONFIG

BATCH = 64  # the global batch: each task takes its half of every batch


def network():
    model = keras.Sequential([
        keras.Input((8, 8, 1)), keras.layers.Rescaling(1 / 16),
        keras.layers.Conv2D(16, 3, activation="relu"), keras.layers.Flatten(),
        keras.layers.Dense(10),
    ])  # fmt: skip
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.005), loss, metrics=["accuracy"])
    return model


model_file = sys.argv[1]
images = tfdistr.load_dataset("digits").dataset().shuffle(1437, seed=1).batch(BATCH)
test_images = tfdistr.load_dataset("digits", "test").dataset().batch(BATCH)

with strategy.scope():
    model = network()
model.fit(images, epochs=4, verbose=0)

if tfdistr.is_chief():
    model.save(model_file)
strategy.barrier("saved", timeout=60)  # the file is there only now

with strategy.scope():
    model = keras.models.load_model(model_file)
loss, accuracy = model.evaluate(test_images, verbose=0)

cluster = tfdistr.cluster_from_env()
task = f"{cluster.task.type} {cluster.task.index}" if cluster else "chief 0"
tasks = cluster.num_workers if cluster else 1
print(f"{task} of {tasks} tasks: loss {loss:.4f}, accuracy {accuracy:.4f}")
