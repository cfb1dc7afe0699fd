"""What the workers hear of one that failed, where each was started by hand."""

import signal

import pytest
import tensorflow as tf
from clusters import run_cluster
from slow import mostly_slow

from tfdistr.rendezvous.peer_failure import (
    attribute_failure,
    is_peer_failure,
    lost_worker,
    peer_message,
    report,
    report_early_end,
    report_end,
    reported_failure,
)

pytestmark = pytest.mark.timeout(180)
TASKS = {"chief 0": "10.0.0.1:1", "worker 0": "10.0.0.2:2", "worker 1": "node3:3"}


def calls(output: str) -> list[str]:
    return [line.removeprefix("CALL: ") for line in output.splitlines() if line.startswith("CALL: ")]


SLOW = pytest.mark.slow(reason="starts four processes and waits for their timeouts")


@pytest.mark.parametrize(
    ("fault", "said", "own"),
    [
        pytest.param("interrupt", "KeyboardInterrupt", "KeyboardInterrupt: ", marks=SLOW),
        pytest.param("exit", "SystemExit: 3", None, marks=SLOW),
        ("unavailable", "UnavailableError: no such bucket", "UnavailableError: no such bucket"),
    ],
)
def test_a_session_that_lives_on_hears_of_a_failure_and_of_what_comes_after_it(fault, said, own):
    ended = run_cluster("calls.py", 2, [fault], timeout=150)
    assert [one.status for one in ended] == [0, 0 if own else 3], ended[0].output[-3000:]
    chief, other = (calls(one.output) for one in ended)
    for first, second, *_ in (chief, other):
        assert first == "1 epochs"
        assert second.startswith("ClusterStartError: Cannot join another cluster: a process stays in the")
        assert "Received: communication 'ring', where the first call had 'auto' | " in second
    assert chief[2] == f"WorkerFailedError: Worker 1 failed: {said}"
    assert chief[3].startswith(
        "ClusterStartError: A worker of this cluster has failed, so its connections are closed. | Received: "
        f"a call after this: Worker 1 failed: {said} | Fix: Restart the process"
    )
    if own:
        assert other[2] == own
        assert f"a call after this: {report(1, Exception())[:26]}" in other[3]
        assert said in other[3]


def test_a_long_message_is_cut_for_the_peers():
    said = report(1, ValueError("x" * 10_000_000))
    assert said.endswith("xxx... (the log of worker 1 has all)")
    assert len(said) < 10_200


def test_a_worker_that_only_lost_another_is_not_blamed():
    ended = run_cluster("left_by_a_peer.py", 3, [], timeout=150)
    assert ended[2].status == -9
    for one in ended[:2]:
        assert one.status == 1
        assert "Worker 1 failed" not in one.output
        assert "failure of worker 1" not in one.output


# Slow: starts four processes and waits for their timeouts.
@pytest.mark.parametrize(("how", "workers"), mostly_slow([("waits", 3), ("forked", 2)], quick=[("waits", 3)]))
def test_a_worker_that_is_killed_is_named_within_three_seconds(tmp_path, how, workers):
    ended = run_cluster("calls.py", workers, [how, str(tmp_path / "ended")], timeout=150)
    assert [one.status for one in ended] == [*[0] * (workers - 1), -signal.SIGKILL], ended[0].output[-3000:]
    for one in ended[:-1]:
        first, second = calls(one.output)
        assert first == "1 epochs"
        seconds, _, error = second.partition(" s: ")
        assert float(seconds) < 3
        assert error.startswith(f"WorkerFailedError: Worker {workers - 1} failed: 127.0.0.1:")
        assert " | Fix: See its log" in error


def test_a_worker_that_hears_late_blames_the_worker_that_failed():
    ended = run_cluster("calls.py", 3, ["late"], timeout=150)
    assert [one.status for one in ended] == [0, 0, 0], ended[1].output[-3000:]
    assert [calls(one.output)[1] for one in ended] == [
        "WorkerFailedError: Worker 2 failed: ValueError: a fault",
        "WorkerFailedError: Worker 2 failed: ValueError: a fault",
        "ValueError: a fault",
    ]


def test_a_worker_that_leaves_after_the_training_ends_nothing(tmp_path):
    ended = run_cluster("calls.py", 3, ["leaves", str(tmp_path / "ended")], timeout=150)
    assert [one.status for one in ended] == [0, 0, 0], ended[0].output[-3000:]
    assert [calls(one.output) for one in ended[:2]] == [["1 epochs", "saved"]] * 2


@pytest.mark.parametrize(
    ("text", "worker"),
    [
        ("Task /job:worker/replica:0/task:0 heartbeat timeout. This indicates that the remote task has", 1),
        ("tasks are unhealthy (stopped sending heartbeats):\n/job:worker/replica:0/task:1\nThe tasks", 2),
        ("Additional GRPC error information from remote target /job:chief/replica:0/task:0 while calling", 0),
        ("Error reported from /job:worker/task:1: Socket closed", 2),
    ],
)
def test_the_worker_that_is_gone_is_found_in_what_tensorflow_says(text, worker):
    error = tf.errors.UnavailableError(None, None, text)
    lost = lost_worker(error, TASKS)
    address = list(TASKS.values())[worker]
    assert lost is not None
    assert lost.message.startswith(f"Worker {worker} failed: {address} is unreachable: it was")
    assert (lost.worker, lost.host) == (worker, address.partition(":")[0])
    assert peer_message(error, 1, TASKS).startswith(f"tfdistr: failure of worker {worker}: {address} is")


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (tf.errors.DeadlineExceededError,
         "by: Deadline Exceeded\n\nRPC: /tensorflow.CoordinationService/Heartbeat", True),
        (tf.errors.DeadlineExceededError, "a step took too long", False),
        (tf.errors.InternalError, "Executing non-communication op <while/body> originally returned "
         "UnavailableError, and was replaced by InternalError to avoid invoking TF network error handling",
         True),
        (tf.errors.InternalError, "Executing op <while/body> failed", False),
        (tf.errors.UnavailableError, "no such bucket", True),  # as far as can be said
    ],
)  # fmt: skip
def test_an_error_that_only_says_that_a_peer_was_lost(kind, text, expected):
    assert is_peer_failure(kind(None, None, text)) is expected


def test_the_message_about_the_first_failure_counts_more_than_an_error_about_the_leader():
    error = tf.errors.UnavailableError(None, None, "from remote target /job:chief/replica:0/task:0 while")
    summary = attribute_failure(error, 1, TASKS).summary
    assert summary.startswith("Worker 0 failed: 10.0.0.1:1 is unreachable")
    verdict = attribute_failure(error, 1, TASKS, heard=lambda: report(2, ValueError("a fault")))
    assert (verdict.known, verdict.news) == (True, report(2, ValueError("a fault")))
    assert verdict.failure is not None
    assert (verdict.failure.worker, verdict.summary) == (2, "Worker 2 failed: ValueError: a fault")


def test_an_error_of_its_own_is_told_as_such():
    own = tf.errors.UnavailableError(None, None, "no such bucket")
    assert lost_worker(own, TASKS) is None
    assert peer_message(own, 2, TASKS) == "tfdistr: failure of worker 2: UnavailableError: no such bucket"
    told = reported_failure(tf.errors.AbortedError(None, None, peer_message(own, 2, TASKS)))
    assert told is not None
    assert told.message == "Worker 2 failed: UnavailableError: no such bucket"
    assert (told.host, told.fix) == ("unknown", None)


@pytest.mark.parametrize(
    ("said", "failure", "fix"),
    [
        (report_end(1, TASKS["worker 0"]),
         "10.0.0.2:2 exited without an error message: it was killed, or it crashed.",
         "See its log, and the log of its machine (dmesg shows whether memory was the reason)."),
        (report_early_end(1), "its program has ended, but other workers have not.",
         "Make the same calls of fit(), evaluate() and predict() on every worker."),
    ],
)  # fmt: skip
def test_the_end_of_a_process_is_told_with_its_fix(said, failure, fix):
    text = f"Collective ops is aborted by: {said}\nThe error could be from a previous operation. Restart"
    told = reported_failure(tf.errors.AbortedError(None, None, text), TASKS)
    assert told is not None
    assert (told.message, told.fix) == (f"Worker 1 failed: {failure}", fix)
    assert (told.worker, told.host) == (1, "10.0.0.2")
