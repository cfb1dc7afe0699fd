"""TF_CONFIGs that are refused: the rule that each breaks, and what is shown of it."""

import json
from typing import Any

A, B, C = "10.0.0.1:2222", "10.0.0.2:2222", "10.0.0.3:2222"
WORKER_0 = {"type": "worker", "index": 0}

# What goes in, and the whole of `message` and `received` of the error.
Case = tuple[Any, str, str | None]


def text_of(**members: Any) -> str:
    """A valid TF_CONFIG with some members replaced."""
    return json.dumps({"cluster": {"worker": [A, B]}, "task": WORKER_0} | members)


def with_jobs(**jobs: Any) -> str:
    return text_of(cluster=jobs)


def with_task(type: Any, index: Any) -> str:
    return text_of(task={"type": type, "index": index})


def shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def addresses(rule: str, *received: Any) -> list[Case]:
    """The second worker's address is wrong, the same way each time."""
    message = f"`cluster.worker[1]` must {rule}."
    return [(with_jobs(worker=[C, one]), message, shown(one)) for one in received]


def the_same(rule: str, *cases: tuple[Any, str | None]) -> list[Case]:
    return [(config, rule, received) for config, received in cases]


DEEP_RULE = "TF_CONFIG must not be nested more than 64 levels deep."
DEEP: Any = A
for _ in range(100):
    DEEP = [DEEP]

JSON: list[Case] = [
    ("", "TF_CONFIG must be valid JSON: Expecting value: line 1 column 1 (char 0).", '""'),
    *the_same(
        "TF_CONFIG must be JSON text, or a mapping.", (b"{}", "b'{}' (bytes)"), (None, "null (NoneType)")
    ),
    *the_same(
        "TF_CONFIG must be JSON, which has no NaN or Infinity.",
        ('{"cluster": NaN}', "NaN"),
        (with_task("worker", float("-inf")), "-Infinity"),
    ),
    ('{"cluster": {"worker": "a:1", "worker": "b:1"}}', "TF_CONFIG must name each member of an object once.",
     '"worker" twice'),
    *the_same(DEEP_RULE, ('{"a":' * 100_000 + "1" + "}" * 100_000, None), ({"cluster": DEEP}, None)),
    ({"cluster": {0: A}}, "The members of `cluster` must have strings as names.", "0"),
    *the_same(
        "`cluster.worker` must be text, a finite number, true, false, null, a list or an object.",
        ({"cluster": {"worker": {A}}}, f"{{'{A}'}} (set)"),
        ({"cluster": {"worker": float("nan")}}, "NaN (float)"),
        (with_jobs(worker=0).replace("0}", "1e400}", 1), "Infinity (float)"),
    ),
]  # fmt: skip

WHOLE: list[Case] = [
    ("[]", '`TF_CONFIG` must be a JSON object with the members "cluster" and "task".', "[]"),
    ('{"clusters": {}}', '`TF_CONFIG` must have the member "cluster".', '{"clusters": {}}'),
    ('{"cluster": {"worker": "a:1"}}', '`TF_CONFIG` must have the member "task".',
     '{"cluster": {"worker": "a:1"}}'),
]  # fmt: skip

ONE_RULE = "must have one address: a cluster has at most one"
JOBS_RULE = 'The jobs of `cluster` must be among "chief", "worker", "ps", "evaluator".'

CLUSTER: list[Case] = [
    *the_same(
        "`cluster` must be an object that gives the addresses of each job, with at least one worker or a "
        "chief.",
        (text_of(cluster=None), "null"),
        (text_of(cluster={}), "{}"),
    ),
    *the_same(
        "`cluster` must have at least one address of a worker, or of a chief that trains without parameter "
        "servers.",
        (with_jobs(worker=[], ps=None), "addresses for no job"),
        (with_jobs(ps=[A]), "addresses for ps"),
        (with_jobs(chief=A, ps=B), "addresses for chief, ps"),
    ),
    (with_jobs(worker=A, ps=B),
     "A cluster with parameter servers must have a chief: the task that calls distributed_fit().",
     "addresses for worker, ps"),
    *the_same(JOBS_RULE, (with_jobs(wroker=[A]), '"wroker"'), (with_jobs(master=[A]), '"master"')),
    (with_jobs(ps=4), '`cluster.ps` must be a list of addresses "host:port".', "4"),
    (with_jobs(worker={"x": A}), '`cluster.worker` must be a list of addresses "host:port".',
     f'{{"x": "{A}"}}'),
    (with_jobs(chief=[A, B]), f"`cluster.chief` {ONE_RULE} chief.", f'["{A}", "{B}"]'),
    (with_jobs(worker=C, evaluator=[A, B]), f"`cluster.evaluator` {ONE_RULE} evaluator.", f'["{A}", "{B}"]'),
    *the_same(
        "`cluster.worker[1]` must be an address of its own: two tasks cannot listen on one port.",
        (with_jobs(worker=["a:1", "a:1"]), '"a:1"; cluster.worker[0] is "a:1"'),
        (with_jobs(worker=["b:1", "a:1"], chief="A:1"), '"a:1"; cluster.chief[0] is "A:1"'),
        (with_jobs(worker=["[fe80::1]:1", "[fe80:0::1]:1"]),
         '"[fe80:0::1]:1"; cluster.worker[0] is "[fe80::1]:1"'),
        (with_jobs(worker=["localhost:1", "127.0.0.1:1"]),
         '"127.0.0.1:1"; cluster.worker[0] is "localhost:1"'),
        (with_jobs(worker=["127.0.0.2:1", "[::1]:1"]), '"[::1]:1"; cluster.worker[0] is "127.0.0.2:1"'),
    ),
]  # fmt: skip

PORT_RULE = "have a port from 1 to 65535"

ADDRESS: list[Case] = [
    *addresses('be an address "host:port"', None, 2222),
    (with_jobs(worker=[[[A]]]), '`cluster.worker[0][0]` must be an address "host:port".', f'["{A}"]'),
    *addresses('be one address "host:port", not a list of several', [A, B], []),
    (with_jobs(worker=":2222"), "`cluster.worker` must have a host before the port.", '":2222"'),
    *addresses("have a host before the port", "", ":", ":2222"),
    *addresses("have a port", "a", "a:", "[::1]", "[::1]:"),
    *addresses(PORT_RULE, "a:0", "a:65536", "a:99999", "a:100000", "a:-1", "a:+1", "[::1]:0"),
    *addresses(PORT_RULE, "a:1.5", "a:http", "a:0000", "a:٣", "a:" + "9" * 50),
    *addresses(
        "have one colon, or its IPv6 address in brackets", "fe80::1:2222", "fe80::1", "a:1:2", "::1:80"
    ),
    *addresses(
        "have a valid IPv6 address in brackets, then a port",
        *("[::1:2222", "[a]:1", "[]:1", "[10.0.0.1]:1", "[::1]2222", "[fe80::1%eth0]:1", "[:::]:1"),
    ),
    *addresses("not contain white space", " a:1", "a:1\n", "a :1", "a:1,\tb:1", "a:1\u00a0", " "),
    *addresses(
        "have a host of at most 253 characters, and at most 63 between two dots",
        *(f"{'a' * 64}:1", f"a.{'b' * 64}.c:1"),
    ),
    *addresses('be "host:port", without a scheme or a path', "grpc://a:1", "a:1/", "/a:1"),
    *addresses(
        'have a host of letters, digits, "-", "_" and ".", or a valid IP address',
        *("münchen:1", "a,b:1", "$(reboot):1", "a'b:1", "300.0.0.1:1", "a\0:1", "a]:1", "münchen"),
    ),
]

NAME_RULE = 'must be one of "chief", "worker", "ps", "evaluator".'
INDEX_RULE = "must be a whole number, 0 or greater."

NOT_TYPES: list[Any] = ["master", "Worker", "worker ", "", None, 0, True, {}]
NOT_INDICES: list[Any] = [-1, 0.5, True, False, None, {}, "", "-1", "1.0", " 1", "1\n", "one", "٠", "1" * 10]

TASK: list[Case] = [
    (text_of(task=None), '`task` must be an object with the members "type" and "index".', "null"),
    (text_of(task={"index": 0}), '`task` must have the member "type".', '{"index": 0}'),
    (text_of(task={"type": "ps"}), '`task` must have the member "index".', '{"type": "ps"}'),
    *((with_task(type, 0), f"`task.type` {NAME_RULE}", shown(type)) for type in NOT_TYPES),
    (with_task(["x"], 0), f"`task.type[0]` {NAME_RULE}", '"x"'),
    *the_same(
        "`task.type` must be one job name, not a list of several.",
        (with_task(["worker", "ps"], 0), '["worker", "ps"]'),
        (with_task([], 0), "[]"),
    ),
    *((with_task("worker", index), f"`task.index` {INDEX_RULE}", shown(index)) for index in NOT_INDICES),
    (with_task("worker", [-1]), f"`task.index[0]` {INDEX_RULE}", "-1"),
    *the_same(
        "`task.index` must be one number, not a list of several.",
        (with_task("worker", [0, 1]), "[0, 1]"),
        (with_task("worker", []), "[]"),
    ),
    (with_task("ps", 0), "`task.type` must be a job of the cluster (worker), or evaluator.", '"ps"'),
    (with_task("worker", 2),
     "`task.index` must be from 0 to 1: the cluster has 2 worker tasks, counted from 0.", "2"),
    (text_of(cluster={"worker": A, "chief": B}, task={"type": "chief", "index": 1}),
     "`task.index` must be 0: the cluster has 1 chief task, counted from 0.", "1"),
]  # fmt: skip

#: Where the fix depends on what is wrong: its end.
FIXES = {
    "": "Build it with tf_config(...).to_json(). In a shell, put it in single quotes: "
    "export TF_CONFIG='...'.",
    with_jobs(wroker=[A]): "Rename the job, or remove it.",
    with_jobs(master=[A]): 'Rename the job, or remove it: TensorFlow 2 calls it "chief".',
    with_jobs(worker={"x": A}): f'Write it like ["{A}", "{B}"]. In R, unname() the list.',
    with_jobs(ps=4): f'Write it like ["{A}", "{B}"].',
    with_jobs(chief=[A, B]): "Keep one address; the others may be workers, in `cluster.worker`.",
    with_jobs(worker=[C, "[::1]"]): 'Add the port that this task listens on, like "[::1]:2222".',
    with_jobs(worker=[C, "a:0"]): 'Choose a free port that all tasks know beforehand, like "a:2222".',
    with_jobs(worker=[C, "::1:80"]): 'Write it like "[::1]:80".',
    with_jobs(worker=[C, "fe80::1"]): 'Write it like "[fe80::1]:2222".',
    with_jobs(worker=[C, "a:1:2"]): 'Write it like "[fe80::1]:2222".',
    with_task("worker", 2): "Correct the index, or add addresses to `cluster.worker`.",
    text_of(cluster={"worker": A, "chief": B}, task={"type": "chief", "index": 1}): (
        "Correct the index: a cluster has at most one chief."
    ),
    text_of(task={"type": "ps"}): 'Add "index": 0.',
}
