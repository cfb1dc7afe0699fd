"""Workers that were told to run different jobs say so, instead of waiting for each other for ever."""

import json

import pytest
from clusters import run_cluster

import tfdistr
from tfdistr.collectives.comparison import agree, check_variable

pytestmark = pytest.mark.timeout(200)


class Exchange:
    """Stands for the collectives of worker 1, whose chief is about to make a variable, or not.

    Its peers send these fields.
    """

    index = 1

    def __init__(self, *peers: dict, variable: str | None = None) -> None:
        self._variable, self.reported = variable, ""
        described = [{"fields": fields, "note": number} for number, fields in enumerate(peers, 1)]
        self._peers = list(map(json.dumps, described))

    def exchange(self, text: str) -> list[str]:
        return [text, *self._peers]

    def text_of_chief(self, text: str) -> str:
        return self._variable or text

    def report_failure(self, message: str) -> None:
        self.reported = message

    def barrier(self, name: str, timeout: float) -> None:
        assert timeout <= 5


def test_what_one_has_no_opinion_on_goes_with_anything():
    assert agree(Exchange({"seed": None}, {"seed": "7"}), {"seed": 7}) == [None, 1, 2]


def test_a_difference_names_the_field_and_the_workers():
    with pytest.raises(tfdistr.JobMismatchError, match=r"All workers must run the same job\.") as caught:
        agree(Exchange({"a": "1", "b": "y"}, {"a": "2", "b": "x"}), {"a": 1, "b": "x"})
    assert caught.value.received == (
        "a: 1 on worker 0 and worker 1, 2 on worker 2; b: x on worker 0 and worker 2, y on worker 1"
    )


def test_a_field_that_one_lacks_is_a_difference():
    with pytest.raises(tfdistr.JobMismatchError, match="layer 2: Dense on worker 0, nothing on worker 1"):
        agree(Exchange({"layer 1": "Dense"}), {"layer 1": "Dense", "layer 2": "Dense"})


def test_many_differences_are_cut_short():
    with pytest.raises(tfdistr.JobMismatchError, match=r"field 4: .*; 15 more differences\nFix"):
        agree(Exchange({}), {f"field {number}": number for number in range(20)})


OTHER_VARIABLES = [
    (lambda peers: agree(peers, {}), "iteration, int64 []",
     "no more variables on worker 1, where worker 0 has iteration, int64 []"),
    (lambda peers: check_variable(peers, 1, "kernel", "float32 [2x3]"), "no more variables",
     "a variable kernel, float32 [2x3] on worker 1, where worker 0 has no more variables"),
    (lambda peers: check_variable(peers, 1, "kernel", "float32 [2x3]"), "bias, float32 [2]",
     "a variable kernel, float32 [2x3] on worker 1, where worker 0 has bias, float32 [2]"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "chiefs", "received"), OTHER_VARIABLES)
def test_models_of_other_variables_are_refused_where_they_part(call, chiefs, received):
    peers = Exchange(variable=chiefs)
    with pytest.raises(tfdistr.JobMismatchError, match=r"The workers build different models\.") as caught:
        call(peers)
    assert caught.value.received == received
    assert peers.reported == f"tfdistr: failure of worker 1: JobMismatchError: {caught.value}"


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What calls that differ raised on both workers."""
    folder = tmp_path_factory.mktemp("said")
    for worker in run_cluster("mismatched.py", 2, [str(folder)], timeout=120):
        assert (folder / "0.json").exists(), worker.output[-3000:]
    return [json.loads((folder / f"{index}.json").read_text()) for index in range(2)]


@pytest.mark.parametrize(
    ("call", "received"),
    [
        ("epochs and batch_size", "batch_size: 16 on worker 0, 17 on worker 1; "
                                  "epochs: 1 on worker 0, 2 on worker 1"),
        ("seed", "seed: 3 on worker 0, 4 on worker 1"),
        ("learning rate", "learning_rate_factor: 1.0 on worker 0, 2.0 on worker 1"),
        ("examples", "examples: 50 on worker 0, 30 on worker 1"),
        ("one example", "examples: 50 on worker 0, 49 on worker 1"),
        ("reading", "examples are read: in order on worker 0, by index on worker 1"),
        (
            "reading for validation",
            "validation examples are read: in order on worker 0, by index on worker 1",
        ),
        ("steps", "steps_per_epoch: 4 on worker 0, 2 on worker 1"),
        ("version", f"version of tfdistr: {tfdistr.__version__} on worker 0, 0.0.9 on worker 1"),
    ],
)  # fmt: skip
def test_every_worker_raises_the_same_error_before_the_first_step(said, call, received):
    for of_worker in said:
        lines = of_worker[call].splitlines()
        assert lines[0] == "JobMismatchError: All workers must run the same job."
        assert lines[1].startswith(f"Received: {received}")


def test_a_seed_that_only_one_gave_is_no_difference(said):
    assert [of_worker["seed of one"] for of_worker in said] == ["trained", "trained"]


def test_models_of_other_shapes_are_refused_while_they_are_made(said):
    chief, other = (of_worker["model"] for of_worker in said)
    error = (
        "JobMismatchError: The workers build different models.\n"
        "Received: a variable kernel, float32 [4x4] on worker 1, where worker 0 has kernel, float32 [4x3]\n"
        "Fix: Run the same program, with the same arguments and package versions, on every worker."
    )
    assert other == error
    assert chief == f"WorkerFailedError: Worker 1 failed: {error}"
