"""Compares the arguments of strategies with those of their namesakes in the installed TensorFlow.

It prints the differences. The exit status is 1 if there is one.
"""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import tfdistr

Parameters = dict[str, inspect.Parameter]


def parameters(function: Callable[..., Any]) -> Parameters:
    """The parameters of a function by name, without ``self``."""
    return {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self"
    }  # fmt: skip


def differences(ours: Parameters, stock: Parameters) -> list[str]:
    """Return what keeps ``ours`` from taking each call that ``stock`` takes, with the same meaning.

    An argument that TensorFlow requires may have a default here.
    """
    found = []
    first = list(ours)[: len(stock)]
    if first != list(stock):
        found.append(f"the first arguments are {first}, and TensorFlow's are {list(stock)}")
    for name in stock.keys() & ours.keys():
        if ours[name].kind is not stock[name].kind:
            found.append(f"{name} is {ours[name].kind.description}, and {stock[name].kind.description} there")
        if stock[name].default not in (inspect.Parameter.empty, ours[name].default):
            found.append(f"{name}={ours[name].default!r}, and {name}={stock[name].default!r} there")
    more = [name for name in ours.keys() - stock.keys() if ours[name].kind is not ours[name].KEYWORD_ONLY]
    return [*found, *(f"{name} can be given by place" for name in more)]


def all_differences() -> list[str]:
    """The differences of all strategies, and what `CommunicationOptions` has that tfdistr does not use."""
    found = [
        f"{name}: {text}"
        for name in ("MultiWorkerMirroredStrategy", "MirroredStrategy", "OneDeviceStrategy")
        for text in differences(parameters(getattr(tfdistr, name)), parameters(getattr(tf.distribute, name)))
    ]
    ours = parameters(tfdistr.MultiWorkerMirroredStrategy)
    older = parameters(tf.distribute.experimental.MultiWorkerMirroredStrategy)  # its arguments have names
    found += [f"experimental.MultiWorkerMirroredStrategy: {name}" for name in older.keys() - ours.keys()]
    options = parameters(tf.distribute.experimental.CommunicationOptions.__init__).keys()
    used = {"bytes_per_pack", "timeout_seconds", "implementation"}
    found += [f"CommunicationOptions: {name}" for name in options ^ used]
    implementations = {one.name for one in tf.distribute.experimental.CommunicationImplementation}
    found += [f"CommunicationImplementation: {name}" for name in implementations ^ {"AUTO", "RING", "NCCL"}]
    return found


if __name__ == "__main__":
    left = all_differences()
    print(f"TensorFlow {tf.__version__}:", *(left or ["no differences"]), sep="\n")
    sys.exit(bool(left))
