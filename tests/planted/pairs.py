"""The healthy pairs: nothing may be found in them."""

from __future__ import annotations

import functools

import plants
from case import NOTHING, Case
from cases import from_file
from nets import DATA, OwnStep

import tfdistr

_pair = functools.partial(Case, finds=NOTHING, by="pair")
RESTARTS = {"failures": tfdistr.on_failure(max_restarts=1), "in_cluster": True}
PAIRS = [
    _pair("1 and 2 workers", "dense", other={"workers": 2}),
    _pair("1 and 3 workers", "attention", other={"workers": 3}),
    _pair("1 and 2 workers", "lstm", other={"workers": 2}),
    _pair("2 and 4 workers", "dense", workers=2, other={"workers": 4}),
    _pair("1 and 2 workers", "cnn", virtual=4, other={"workers": 2}),
    _pair("2 and 4 workers", "cnn", workers=2, virtual=4, other={"workers": 4}),
    _pair("1 and 2 workers, batch normalization", "normal", virtual=4, other={"workers": 2}),
    _pair("1 and 2 workers, dropout", "dense", virtual=2, both={"model": {"drop": 1}}, other={"workers": 2}),
    _pair("1 and 3 workers", "lstm", virtual=3, other={"workers": 3}),
    _pair("resumed", "dense", resumed=True),
    _pair("resumed", "cnn", workers=2, virtual=2, resumed=True),
    _pair("resumed after a torn checkpoint", "lstm", resumed=True, after=plants.tear_checkpoint),
    _pair("killed and restarted", "dense", both={"in_cluster": True}, other=RESTARTS | {"kill": 9}),
    _pair("killed and restarted", "cnn", workers=2, virtual=2, other=RESTARTS | {"kill": 9}),
    _pair("steps_per_execution", "attention", other={"model": {"steps_per_execution": 3}}, knows="model"),
    _pair("in this process and in another", "cnn", other={"in_cluster": True}),
    _pair("other checkpoints", "lstm", other={"checkpoint_every": 5}),
    _pair("twice", "half", other={}),
    _pair("twice, compiled by XLA", "dense", both={"model": {"jit_compile": True}}),
    _pair("1 and 2 workers, a step of its own", "dense", virtual=2, other={"workers": 2},
          both={"model": {"kind": OwnStep}}),
    _pair("a pipeline on 1 and 2 workers", "dense", virtual=2, other={"workers": 2},
          both={"x": from_file(*DATA["dense"]), "y": None, "batch_size": None}),
    _pair("verified", "dense", by="verify"),
    _pair("verified", "cnn", workers=3, virtual=3, by="verify"),
]  # fmt: skip
