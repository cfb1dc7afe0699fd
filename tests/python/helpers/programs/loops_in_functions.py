"""Iterates over distributed batches, in and outside of a ``tf.function``, as scripts for TensorFlow do.

Usage: loops_in_functions.py FILE              (one worker of the cluster of TF_CONFIG)
       loops_in_functions.py FILE mirrored     (MirroredStrategy on two devices of this process)

FILE gets the sums of the batches that each way has seen, as JSON.
"""

import json
import sys
from pathlib import Path

import tensorflow as tf

import tfdistr

if sys.argv[2:] == ["mirrored"]:
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tfdistr.MirroredStrategy(["cpu:0", "cpu:1"])
else:
    strategy = tfdistr.make_strategy(start_timeout=60)

DATASET = tf.data.Dataset.range(11).batch(4)  # the sums of the batches are 6, 22 and 27
BATCHES = tfdistr.distribute(DATASET, strategy)


def by_function(context):
    """As ``distribute_datasets_from_function`` takes it: each pipeline has its own rows."""
    own = tf.data.Dataset.range(12).shard(context.num_input_pipelines, context.input_pipeline_id)
    return own.batch(context.get_per_replica_batch_size(4))


def total(batch):
    return strategy.reduce("SUM", strategy.run(tf.reduce_sum, args=(batch,)), axis=None)


step = tf.function(total)


def outside():
    return [step(batch) for batch in BATCHES]


def next_outside():
    iterator = iter(BATCHES)
    return [step(next(iterator)), step(next(iterator)), step(next(iterator)), next(iterator, -1)]


@tf.function
def epoch(batches):
    """The sum of all batches, with the first one once, the second one twice, and so on."""
    result, number = tf.constant(0, tf.int64), tf.constant(1, tf.int64)
    for batch in batches:
        result += number * total(batch)
        number += 1
    return result


@tf.function
def closure():
    result = tf.constant(0, tf.int64)
    for batch in BATCHES:
        result += total(batch)
    return result


@tf.function
def steps(iterator, count):
    result = tf.constant(0, tf.int64)
    for _ in tf.range(count):
        result += total(next(iterator))
    return result


def next_inside():
    iterator = iter(BATCHES)
    return [steps(iterator, tf.constant(2)), steps(iterator, tf.constant(1))]


@tf.function
def first_two(batches):
    iterator = iter(batches)
    return [total(next(iterator)), total(next(iterator))]


@tf.function
def until(limit):
    result = tf.constant(0, tf.int64)
    for batch in BATCHES:
        if result > limit:
            break
        result += total(batch)
    return result


def broken():
    try:
        return until(tf.constant(5, tf.int64))
    except NotImplementedError as error:
        return str(error).split("NotImplementedError: ")[1].strip()


def nested():
    return {"one": tf.constant(1), "more": [tf.constant(2)]}


def plain(value):
    return value if isinstance(value, str) else tf.nest.map_structure(int, value)


found = {
    "for outside": outside(),
    "next outside": next_outside(),
    "for inside": [epoch(BATCHES), epoch(BATCHES), closure()],
    "for over an iterator inside": epoch(iter(BATCHES)),
    "next inside": next_inside(),
    "iter inside": [first_two(BATCHES), first_two(BATCHES)],
    "iter inside, from a function": [
        first_two(strategy.distribute_datasets_from_function(by_function)) for _ in range(2)
    ],
    "break inside": broken(),
    "batches": BATCHES.cardinality() if callable(BATCHES.cardinality) else BATCHES.cardinality,
    "nested": strategy.reduce("SUM", strategy.run(nested), axis=None),
}
Path(sys.argv[1]).write_text(json.dumps({name: plain(value) for name, value in found.items()}))
