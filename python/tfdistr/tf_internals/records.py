"""Reading one record of a TFRecord file."""

from __future__ import annotations

from typing import Any

from tensorflow.python.lib.io import tf_record


def random_record_reader(path: str) -> Any:
    """Open a TFRecord file. ``read(position)`` returns a record and the position of the next one.

    It checks both checksums of the record. ``tf_record_random_reader`` is private. The public
    ``tf.data.TFRecordDataset`` reads files from the beginning only, and no public function computes the
    checksums.
    """
    return tf_record.tf_record_random_reader(path)
