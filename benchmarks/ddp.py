"""One worker of PyTorch's DistributedDataParallel with gloo.

Batches are gathered by index from tensors in memory. What Keras does besides, metrics and logs, is left
out: this is the fastest form that was found. The same loop trains a model of Keras on torch.

Usage: ddp.py [--model torch|compiled|keras] [--steps STEPS] NETWORK FOLDER
(with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them)
"""

import argparse
import os
import time

import measure
import networks
import torch
import torch_networks
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("network", choices=networks.NETWORKS)
parser.add_argument("folder")
parser.add_argument("--model", choices=("torch", "compiled", "keras"), default="torch")
parser.add_argument("--steps", type=int, help="train two epochs of so many steps")
given = parser.parse_args()
name = given.network

torch.set_num_threads(1)  # each worker has one core
torch.manual_seed(1)
distributed.init_process_group("gloo")
rank, workers = distributed.get_rank(), distributed.get_world_size()

labels = torch_networks.labels(name)
if given.model == "keras":
    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    inputs = torch.from_numpy(networks.data(name)[0])
    network = networks.NETWORKS[name].layers(keras, None)
    network(inputs[:1])  # makes the weights of a Sequential
else:
    inputs = torch_networks.inputs(name)
    network = torch_networks.model(name)
# The statistics of batch normalization stay each worker's own: exchanging them takes time.
model = DistributedDataParallel(
    network, gradient_as_bucket_view=True, forward_sync_buffers=False, static_graph=given.model != "compiled"
)
optimizer = torch_networks.optimizer(name, network)
if given.model == "compiled":
    model = torch.compile(model)
loss_of = nn.CrossEntropyLoss()

examples, epochs = networks.amount(name, workers, given.steps)
seconds = []
for _ in range(epochs):
    began = time.monotonic()
    own = torch.randperm(examples)[rank::workers]  # the same order on all workers
    for batch in own.split(networks.PER_WORKER_BATCH):
        optimizer.zero_grad()
        loss_of(model(inputs[batch]), labels[batch]).backward()
        optimizer.step()
    seconds.append(time.monotonic() - began)
measure.save(given.folder, seconds)
distributed.barrier()
os._exit(0)  # it may abort at exit
