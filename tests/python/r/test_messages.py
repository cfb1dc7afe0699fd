"""Messages in R: code in R's words, all else as it is."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdistr.r.messages import in_r, log_in_r


@pytest.mark.parametrize(
    ("python", "r"),
    [
        ("Pass cluster=local_cluster(workers=2).", "Pass cluster = local_cluster(workers = 2)."),
        ("batch_size=None, resume=True", "batch_size = NULL, resume = TRUE"),
        ("Pass epochs=4 or more.", "Pass epochs = 4 or more."),
        ("0.0", "0"),
        ("a number (4.0)", "a number (4)"),
        ("epochs=2.5, not 3.0", "epochs = 2.5, not 3"),
        ("[1.0, 2.0]", "c(1, 2)"),
        ("[True, 1]", "list(TRUE, 1)"),
        ("['a', None]", 'list("a", NULL)'),
        ("{'a': 1, 'if-not': [2, 3]}", 'list(a = 1, "if-not" = c(2, 3))'),
        ("Pass workers=(2, 4).", "Pass workers = c(2, 4)."),
        ("Pass args=(batch,) there.", "Pass args = list(batch) there."),
        ('Pass placement={"a": "worker 0"} here.', 'Pass placement = list(a = "worker 0") here.'),
        ("Pass callbacks=[keras.callbacks.EarlyStopping()].",
         "Pass callbacks = list(keras$callbacks$EarlyStopping())."),
        ("tf.data.Dataset.from_tensor_slices().batch()", "tf$data$Dataset$from_tensor_slices()$batch()"),
        ("x['a'] and newdata[0]['b c']: a dictionary", "x$a and newdata[[1]]$`b c`: a named list"),
        ("an object of class float", "an object of class numeric"),
        ("the loss nan, and -inf", "the loss NaN, and -Inf"),
        ("rows, 93, 8, ... of the data (counted from 0)", "rows, 94, 9, ... of the data (counted from 1)"),
        ("Of 3: rows 1, 2 of the batch, row 0 of /a-1/2.csv (counted from 0). Norms: 4, 5 of the data",
         "Of 3: rows 2, 3 of the batch, row 1 of /a-1/2.csv (counted from 1). Norms: 4, 5 of the data"),
        ("12 of row 5, 0.5 of row 28 (counted from 0)", "12 of row 6, 0.5 of row 29 (counted from 1)"),
        ("`nan` must be one of 'explain'", "`nan` must be one of 'explain'"),
        ('Pass on_failure(nan="explain").', 'Pass on_failure(nan = "explain").'),
        ("Use tfdistr.auto_shard(dataset).", "Use auto_shard(dataset)."),
        ("inside `with strategy.scope():`", "inside `with(strategy$scope(), ...)`"),
        ("as tf_config(worker=, type='chief') does", "as tf_config(worker=, type = 'chief') does"),
        ("pip install mpi4py mpich, or set x", 'reticulate::py_install(c("mpi4py", "mpich")), or set x'),
        ("pip install 'tfdistr[parquet]', or", 'reticulate::py_install("pyarrow>=17"), or'),
        ("pip install 'a[b]'; now", 'reticulate::py_install("a[b]"); now'),
        ("[unclosed, x=[1, 'two", "[unclosed, x = list(1, 'tw)"),
    ],
)  # fmt: skip
def test_code_is_that_of_r(python: str, r: str) -> None:
    assert in_r(python) == r


@pytest.mark.parametrize(
    "text",
    [
        "",
        "'a=None' and \"b=[1]\"",
        "the user's folder, and another user's",
        "export TF_CONFIG='...'",
        "--mpi=pmi2 and OMP_NUM_THREADS=1",
        "newdata: [examples, 3]",
        "tfdistr 0.1.0 and 127.0.0.1:2222",
        "model.keras, in /tmp/fit.d/model.x",
        "x == 1, x >= 2, x != 3",
        "https://example.org/?a=b&c=d",
        'Write {"chief": ["a:2222"]} into a file.',
        "an object of class int_ or of a float",
    ],
)
def test_what_is_no_code_of_python_stays(text: str) -> None:
    assert in_r(text) == text


@given(st.text() | st.text(alphabet="[](){}'\"=,.:a1 N"))
def test_any_text_is_shown(text: str) -> None:
    assert isinstance(in_r(text), str)


def test_a_value_may_be_deep() -> None:
    deep = "[" * 2000 + "]" * 2000
    assert in_r(deep) == deep


def test_the_log_of_a_session_in_r_speaks_r(caplog):
    log = logging.getLogger("tfdistr")
    filters = list(log.filters)
    try:
        log_in_r()
        log_in_r()
        assert len(log.filters) == len(filters) + 1
        log.warning("Pass %s, or %s.", "epochs=4", "env={'a': None}")
    finally:
        log.filters[:] = filters
    assert caplog.messages == ["Pass epochs = 4, or env = list(a = NULL)."]
