"""Errors cross in one process: each side sees its own kind, with the message whole."""

import bridge
import numpy as np

import tfdistr

MESSAGE = "no column {x} in the data: 50% of 'it' is \\\\ missing"


def expect(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def fails():
    raise KeyError(MESSAGE)


if __name__ == "__main__":
    data = np.ones((4, 2), "float32"), np.ones(4, "float32")

    # R's error, in a function that Python calls.
    bridge.r("message <- py_to_r(text)", text=MESSAGE)
    stops = bridge.from_r("function() stop(message)")
    error = expect(Exception, lambda: tfdistr.distributed_fit(stops, *data))
    assert MESSAGE in str(error), error

    # Python's error, in a function that R calls, comes back to Python as the very same.
    call = "distributed_fit(fails, matrix(1, 4, 2), rep(1, 4))"
    error = expect(KeyError, lambda: bridge.r(call, fails=fails))
    assert error.args == (MESSAGE,)

    # tfdistr's own errors are conditions in R, by class, and exceptions again in Python.
    classes = bridge.r("""
      tryCatch(tf_config(worker = "no port"), tfdistr_error_cluster_config = class)
    """)
    assert list(classes)[:2] == ["tfdistr_error_cluster_config", "tfdistr_error"], list(classes)
    error = expect(tfdistr.ClusterConfigError, lambda: bridge.r("tf_config(worker = 'no port')"))
    same = expect(tfdistr.ClusterConfigError, lambda: tfdistr.tf_config(worker=["no port"]))
    assert str(error) == str(same)
    message = str(bridge.r("tryCatch(tf_config(worker = 'no port'), error = conditionMessage)")[0])
    for line in str(same).splitlines():
        assert line.split(": ", 1)[-1] in message, (line, message)

    # An error that R alone raises.
    error = expect(bridge.RError, lambda: bridge.r("stop('only in R')"))
    assert str(error) == "only in R"
    print("same errors")
