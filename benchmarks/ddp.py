"""One worker of PyTorch's DistributedDataParallel with gloo: the same network, batches gathered by index.

What Keras does besides, metrics and logs, is left out: this is the fastest form that was found.

Usage: ddp.py NETWORK FOLDER   (with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them)
"""

import os
import sys
import time

import measure
import networks
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

name, folder = sys.argv[1:]
torch.set_num_threads(1)  # each worker has one core
torch.manual_seed(1)
distributed.init_process_group("gloo")
rank, workers = distributed.get_rank(), distributed.get_world_size()

images, labels = map(torch.from_numpy, networks.data(name))
images = images.permute(0, 3, 1, 2).contiguous().float() / 255  # once: faster than batch by batch
dense = networks.NETWORKS[name].dense
network = nn.Sequential(
    nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    nn.Linear(32 * 13 * 13, dense), nn.ReLU(), nn.Linear(dense, networks.CLASSES),
)  # fmt: skip
assert sum(weights.numel() for weights in network.parameters()) == networks.NETWORKS[name].weights
model = DistributedDataParallel(network, gradient_as_bucket_view=True, static_graph=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
loss_of = nn.CrossEntropyLoss()

seconds = []
for _ in range(networks.NETWORKS[name].epochs):
    began = time.monotonic()
    own = torch.randperm(len(images))[rank::workers]  # the same order on all workers
    for batch in own.split(networks.PER_WORKER_BATCH):
        optimizer.zero_grad()
        loss_of(model(images[batch]), labels[batch]).backward()
        optimizer.step()
    seconds.append(time.monotonic() - began)
measure.save(folder, seconds)
distributed.barrier()
os._exit(0)  # it may abort at exit
