"""From data to a trained model as on a cluster of GPUs: what communicates, and what grows with the workers.

    .venv/bin/python examples/end_to_end.py OUT_DIR [WORKERS [COMMUNICATION]]

WORKERS (2 by default) are started on this machine; where TF_CONFIG describes a cluster, the script is one
worker of that. COMMUNICATION is "auto" by default; "ring" connects any workers, "nccl" those that have a GPU
each: where there is none, the ring takes its place. The chief puts the best model and a table of learning
rates into OUT_DIR. `examples/end_to_end.py out 2 nccl` prints, without a GPU:

    end_to_end.py:92: TfdistrWarning: NCCL needs a GPU on every worker, and TensorFlow sees none here: the
    workers exchange gradients with the ring. Pass communication="ring", or install a TensorFlow that can use
    the GPUs of this machine.
    Epoch 1/4  2.0 s  accuracy: 0.2235  loss: 2.2659  val_accuracy: 0.4056  val_loss: 2.1699
    Epoch 2/4  0.5 s  accuracy: 0.6345  loss: 1.9379  val_accuracy: 0.7333  val_loss: 1.5859
    Epoch 3/4  0.8 s  accuracy: 0.8519  loss: 1.0710  val_accuracy: 0.8444  val_loss: 0.7878
    Epoch 4/4  0.6 s  accuracy: 0.9069  loss: 0.5043  val_accuracy: 0.8278  val_loss: 0.6216
    Trained on 2 workers, 4 epochs, global batch 64, seed 1
      accuracy: 0.9069
      loss: 0.5043
      val_accuracy: 0.8278
      val_loss: 0.6216
    Logs: /tmp/tfdistr-fto28l7h/logs
    epoch 1 ended with the learning rate 0.0739
    epoch 2 ended with the learning rate 0.1000
    epoch 3 ended with the learning rate 0.1000
    epoch 4 ended with the learning rate 0.1000
"""

import os
import sys
from pathlib import Path

import tfdistr

PER_WORKER_BATCH = 32  # what fits a device: the global batch grows with the number of workers
IMAGES = 1437
EPOCHS = 4


def scaled(image, label):
    import tensorflow as tf

    return tf.cast(image, tf.float32) / 16, label


def images():
    """The images over and over, in an order of their own: steps_per_epoch says where an epoch ends."""
    return tfdistr.load_dataset("digits").dataset().map(scaled).shuffle(IMAGES, seed=1).repeat()


def test_images():
    return tfdistr.load_dataset("digits", "test").dataset().map(scaled)


def model():
    import keras
    from keras import layers

    model = keras.Sequential([
        layers.Conv2D(16, 3, activation="relu"), layers.Flatten(), layers.Dense(10),
    ])  # fmt: skip
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    one_workers_rate = 0.05
    model.compile(keras.optimizers.SGD(one_workers_rate), loss, metrics=["accuracy"])
    return model


def writers(out_dir):
    """Both write, so both run on the chief alone; a ModelCheckpoint does so without being told."""

    def callbacks():
        import keras

        def note(epoch, logs):
            rate = keras.ops.convert_to_numpy(rates.model.optimizer.learning_rate)
            with open(f"{out_dir}/learning_rates.txt", "a" if epoch else "w") as file:
                file.write(f"epoch {epoch + 1} ended with the learning rate {rate:.4f}\n")

        rates = keras.callbacks.LambdaCallback(on_epoch_end=note)
        best = keras.callbacks.ModelCheckpoint(f"{out_dir}/best.keras", "val_loss", save_best_only=True)
        return [best, tfdistr.chief_only(rates)]

    return callbacks


if __name__ == "__main__":
    out_dir, *rest = sys.argv[1:]
    workers, communication = [*rest, *("2", "auto")[len(rest) :]]
    os.makedirs(out_dir, exist_ok=True)
    joined = tfdistr.cluster_from_env()
    num_workers = joined.num_workers if joined else int(workers)
    fit = tfdistr.distributed_fit(
        model,
        images,
        validation_data=test_images,
        cluster=None if joined else tfdistr.local_cluster(num_workers),
        strategy=tfdistr.multi_worker_mirrored(communication=communication),
        batch_size=tfdistr.per_worker(PER_WORKER_BATCH, scale_learning_rate="linear", warmup_epochs=2),
        steps_per_epoch=tfdistr.steps_per_epoch(IMAGES, PER_WORKER_BATCH * num_workers),
        epochs=EPOCHS,
        shuffle=False,  # they are shuffled already
        callbacks=writers(os.path.abspath(out_dir)),
        seed=1,
        verbose=2,
    )
    print(fit)
    if fit.workers[0]["index"] == 0:
        print(Path(out_dir, "learning_rates.txt").read_text(), end="")
