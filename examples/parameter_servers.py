"""Softmax regression on MNIST with a parameter server and workers, asynchronously or synchronously.

    .venv/bin/python examples/parameter_servers.py DATA_DIR [UPDATE [WORKERS]]

DATA_DIR holds MNIST as TensorFlow Datasets prepares it; "digits" in its place trains on the small images
that are part of tfdistr, in a few seconds. UPDATE is "async" or "sync". `digits sync 2` prints

    Epoch 1/3  1.2 s  accuracy: 0.4878  loss: 1.8515  val_accuracy: 0.7000  val_loss: 1.4440
    Epoch 2/3  0.5 s  accuracy: 0.8733  loss: 1.0925  val_accuracy: 0.8333  val_loss: 0.9960
    Epoch 3/3  0.5 s  accuracy: 0.9200  loss: 0.7696  val_accuracy: 0.8333  val_loss: 0.8154
    Trained on 2 workers, 3 epochs, global batch 100, seed 1
      accuracy: 0.9200
      loss: 0.7696
      val_accuracy: 0.8333
      val_loss: 0.8154
    Logs: /tmp/tfdistr-qb_h0mss/logs
    worker 0: local steps 45, global step 45
    worker 1: local steps 45, global step 45

On several machines the servers are started by hand, one process each, with the same addresses,

    tfdistr server --type ps --index 0 \\
      --chief-host a:2222 --ps-hosts b:2222 --worker-hosts c:2222,d:2222
    tfdistr server --type worker --index 0 ...

and this script without `cluster`, with the TF_CONFIG of the chief.
"""

import sys

import tfdistr


def softmax(white: int):
    def model():
        import keras
        from keras import layers

        model = keras.Sequential([
            layers.Rescaling(1 / white), layers.Flatten(), layers.Dense(10, activation="softmax"),
        ])  # fmt: skip
        model.compile(keras.optimizers.SGD(0.5), "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model

    return model


if __name__ == "__main__":
    data_dir = sys.argv[1]
    update, workers = [*sys.argv[2:], *("async", "2")[len(sys.argv) - 2 :]]
    small = data_dir == "digits"
    images = {"name": "digits"} if small else {"name": "mnist", "data_dir": data_dir}
    fit = tfdistr.distributed_fit(
        softmax(16 if small else 255),
        tfdistr.load_dataset(split="train", **images),
        validation_data=tfdistr.load_dataset(split="test", **images),
        cluster=tfdistr.local_cluster(int(workers), ps=1),
        strategy=tfdistr.parameter_server(update=update),
        batch_size=100,
        epochs=3,
        seed=1,
        verbose=2,
    )
    print(fit)
    for row in fit.workers:
        if row["task"].startswith("worker"):
            print(f"{row['task']}: local steps {row['local_steps']}, global step {fit.params['global_step']}")
