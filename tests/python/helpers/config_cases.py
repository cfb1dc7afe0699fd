"""TF_CONFIGs that are refused, and what is said of each: the rule, what was received, the fix."""

import json
from typing import Any

A, B, C = "10.0.0.1:2222", "10.0.0.2:2222", "10.0.0.3:2222"
WORKER_0 = {"type": "worker", "index": 0}

# What goes in; then the whole of `message`, `received` and `fix` of the error.
Case = tuple[Any, str, str | None, str]


def text_of(**members: Any) -> str:
    """A valid TF_CONFIG with some members replaced."""
    return json.dumps({"cluster": {"worker": [A, B]}, "task": WORKER_0} | members)


def with_jobs(**jobs: Any) -> str:
    return text_of(cluster=jobs)


def with_task(type: Any, index: Any) -> str:
    return text_of(task={"type": type, "index": index})


def shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def addresses(rule: str, fix: str, *received: str) -> list[Case]:
    """The second worker's address is wrong, the same way each time."""
    message = f"`cluster.worker[1]` must {rule}."
    return [(with_jobs(worker=[C, one]), message, shown(one), fix) for one in received]


def the_same(rule: str, fix: str, *cases: tuple[Any, str | None]) -> list[Case]:
    return [(config, rule, received, fix) for config, received in cases]


NOT_JSON = "TF_CONFIG must be valid JSON: "
NOT_JSON_FIX = (
    "Build it with tf_config(...).to_json(). In a shell, put it in single quotes: export TF_CONFIG='...'."
)
DEEP_RULE = "TF_CONFIG must not be nested more than 64 levels deep."
DEEP: Any = A
for _ in range(100):
    DEEP = [DEEP]

JSON: list[Case] = [
    ("", f"{NOT_JSON}Expecting value: line 1 column 1 (char 0).", '""', NOT_JSON_FIX),
    *the_same(
        "TF_CONFIG must be JSON text, or a mapping.",
        "Pass a string; decode bytes first.",
        (b"{}", "b'{}' (bytes)"),
        (None, "null (NoneType)"),
    ),
    *the_same(
        "TF_CONFIG must be JSON, which has no NaN or Infinity.",
        "Write a number, or leave the member out.",
        ('{"cluster": NaN}', "NaN"),
        (with_task("worker", float("-inf")), "-Infinity"),
    ),
    (
        '{"cluster": {"worker": "a:1", "worker": "b:1"}}',
        "TF_CONFIG must name each member of an object once.",
        '"worker" twice',
        'Join the two values of "worker", or remove one.',
    ),
    *the_same(
        DEEP_RULE,
        "Take out the nested members: a cluster needs three levels.",
        ('{"a":' * 100_000 + "1" + "}" * 100_000, None),
        ({"cluster": DEEP}, None),
    ),
    (
        {"cluster": {0: A}},
        "The members of `cluster` must have strings as names.",
        "0",
        "Write the name as text, or give a list instead.",
    ),
    *the_same(
        "`cluster.worker` must be text, a finite number, true, false, null, a list or an object.",
        "Convert it first, for example a set or an array to a list.",
        ({"cluster": {"worker": {A}}}, f"{{'{A}'}} (set)"),
        ({"cluster": {"worker": float("nan")}}, "NaN (float)"),
        (with_jobs(worker=0).replace("0}", "1e400}", 1), "Infinity (float)"),
    ),
]

WHOLE: list[Case] = [
    *the_same(
        '`TF_CONFIG` must be a JSON object with the members "cluster" and "task".',
        f'Write it like {{"cluster": {{"worker": ["{A}", "{B}"]}}, '
        '"task": {"type": "worker", "index": 0}}.',
        ("[]", "[]"),
    ),
    (
        '{"clusters": {}}',
        '`TF_CONFIG` must have the member "cluster".',
        '{"clusters": {}}',
        f'Add "cluster": {{"worker": ["{A}", "{B}"]}}.',
    ),
    (
        '{"cluster": {"worker": "a:1"}}',
        '`TF_CONFIG` must have the member "task".',
        '{"cluster": {"worker": "a:1"}}',
        'Add "task": {"type": "worker", "index": 0}.',
    ),
]

ONE_RULE = "must have one address: a cluster has at most one"
ONE_FIX = "Keep one address; the others may be workers, in `cluster.worker`."
LIST_FIX = f'Write it like ["{A}", "{B}"].'
JOBS_RULE = 'The jobs of `cluster` must be among "chief", "worker", "ps", "evaluator".'

CLUSTER: list[Case] = [
    *the_same(
        "`cluster` must be an object that gives the addresses of each job, with at least one worker or a "
        "chief.",
        f'Write it like {{"worker": ["{A}", "{B}"]}}.',
        (text_of(cluster=None), "null"),
        (text_of(cluster={}), "{}"),
    ),
    *the_same(
        "`cluster` must have at least one address of a worker, or of a chief that trains without parameter "
        "servers.",
        'Add one, like "worker": ["10.0.0.1:2222"]. To train in this process alone, unset TF_CONFIG.',
        (with_jobs(worker=[], ps=None), "addresses for no job"),
        (with_jobs(ps=[A]), "addresses for ps"),
        (with_jobs(chief=A, ps=B), "addresses for chief, ps"),
    ),
    (
        with_jobs(worker=A, ps=B),
        "A cluster with parameter servers must have a chief: the task that calls distributed_fit().",
        "addresses for worker, ps",
        'Add one, like "chief": ["10.0.0.1:2223"]; it may run beside a worker.',
    ),
    (with_jobs(wroker=[A]), JOBS_RULE, '"wroker"', "Rename the job, or remove it."),
    (
        with_jobs(master=[A]),
        JOBS_RULE,
        '"master"',
        'Rename the job, or remove it: TensorFlow 2 calls it "chief".',
    ),
    *the_same(
        '`cluster.ps` must be a list of addresses "host:port".',
        LIST_FIX,
        (with_jobs(ps=4), "4"),
    ),
    (
        with_jobs(worker={"x": A}),
        '`cluster.worker` must be a list of addresses "host:port".',
        f'{{"x": "{A}"}}',
        f"{LIST_FIX} In R, unname() the list.",
    ),
    (with_jobs(chief=[A, B]), f"`cluster.chief` {ONE_RULE} chief.", f'["{A}", "{B}"]', ONE_FIX),
    (
        with_jobs(worker=C, evaluator=[A, B]),
        f"`cluster.evaluator` {ONE_RULE} evaluator.",
        f'["{A}", "{B}"]',
        ONE_FIX,
    ),
    *the_same(
        "`cluster.worker[1]` must be an address of its own: two tasks cannot listen on one port.",
        "Give each task its own machine, or its own port on the machine.",
        (with_jobs(worker=["a:1", "a:1"]), '"a:1"; cluster.worker[0] is "a:1"'),
        (with_jobs(worker=["b:1", "a:1"], chief="A:1"), '"a:1"; cluster.chief[0] is "A:1"'),
        (
            with_jobs(worker=["[fe80::1]:1", "[fe80:0::1]:1"]),
            '"[fe80:0::1]:1"; cluster.worker[0] is "[fe80::1]:1"',
        ),
        (
            with_jobs(worker=["localhost:1", "127.0.0.1:1"]),
            '"127.0.0.1:1"; cluster.worker[0] is "localhost:1"',
        ),
        (with_jobs(worker=["127.0.0.2:1", "[::1]:1"]), '"[::1]:1"; cluster.worker[0] is "127.0.0.2:1"'),
    ),
]

ADDRESS_FIX = f'Write it like "{A}".'
PORT_RULE = "have a port from 1 to 65535"
PORT_FIX = "Choose a free port that all tasks know beforehand, like"
NO_PORT_FIX = "Add the port that this task listens on, like"
IPV6_RULE = "have one colon, or its IPv6 address in brackets"

ADDRESS: list[Case] = [
    *the_same(
        '`cluster.worker[1]` must be an address "host:port".',
        ADDRESS_FIX,
        (with_jobs(worker=[C, None]), "null"),
        (with_jobs(worker=[C, 2222]), "2222"),
    ),
    (
        with_jobs(worker=[[[A]]]),
        '`cluster.worker[0][0]` must be an address "host:port".',
        f'["{A}"]',
        ADDRESS_FIX,
    ),
    *the_same(
        '`cluster.worker[1]` must be one address "host:port", not a list of several.',
        ADDRESS_FIX,
        (with_jobs(worker=[C, [A, B]]), f'["{A}", "{B}"]'),
        (with_jobs(worker=[C, []]), "[]"),
    ),
    (with_jobs(worker=":2222"), "`cluster.worker` must have a host before the port.", '":2222"', ADDRESS_FIX),
    *addresses("have a host before the port", ADDRESS_FIX, "", ":", ":2222"),
    *addresses("have a port", f'{NO_PORT_FIX} "a:2222".', "a", "a:"),
    *addresses("have a port", f'{NO_PORT_FIX} "[::1]:2222".', "[::1]", "[::1]:"),
    *addresses(PORT_RULE, f'{PORT_FIX} "a:2222".', "a:0", "a:65536", "a:99999", "a:100000", "a:-1", "a:+1"),
    *addresses(PORT_RULE, f'{PORT_FIX} "a:2222".', "a:1.5", "a:http", "a:0000", "a:٣", "a:" + "9" * 50),
    *addresses(PORT_RULE, f'{PORT_FIX} "[::1]:2222".', "[::1]:0"),
    *addresses(IPV6_RULE, 'Write it like "[fe80::1]:2222".', "fe80::1:2222", "fe80::1", "a:1:2"),
    *addresses(IPV6_RULE, 'Write it like "[::1]:80".', "::1:80"),
    *addresses(
        "have a valid IPv6 address in brackets, then a port",
        'Write it like "[fe80::1]:2222".',
        *("[::1:2222", "[a]:1", "[]:1", "[10.0.0.1]:1", "[::1]2222", "[fe80::1%eth0]:1", "[:::]:1"),
    ),
    *addresses(
        "not contain white space",
        "Remove spaces and line ends; one string holds one address.",
        *(" a:1", "a:1\n", "a :1", "a:1,\tb:1", "a:1\u00a0", " "),
    ),
    *addresses(
        "have a host of at most 253 characters, and at most 63 between two dots",
        "Correct the name: no other can be looked up.",
        *(f"{'a' * 64}:1", f"a.{'b' * 64}.c:1"),
    ),
    *addresses('be "host:port", without a scheme or a path', ADDRESS_FIX, "grpc://a:1", "a:1/", "/a:1"),
    *addresses(
        'have a host of letters, digits, "-", "_" and ".", or a valid IP address',
        f'Write it like "node-1:2222" or "{A}".',
        *("münchen:1", "a,b:1", "$(reboot):1", "a'b:1", "300.0.0.1:1", "a\0:1", "a]:1", "münchen"),
    ),
]

NAME_RULE = 'must be one of "chief", "worker", "ps", "evaluator".'
NAME_FIX = 'Write it like "worker".'
INDEX_RULE = "must be a whole number, 0 or greater."

NOT_TYPES: list[Any] = ["master", "Worker", "worker ", "", None, 0, True, {}]
NOT_INDICES: list[Any] = [-1, 0.5, True, False, None, {}, "", "-1", "1.0", " 1", "1\n", "one", "٠", "1" * 10]

TASK: list[Case] = [
    *the_same(
        '`task` must be an object with the members "type" and "index".',
        'Write it like {"type": "worker", "index": 0}.',
        (text_of(task=None), "null"),
    ),
    (
        text_of(task={"index": 0}),
        '`task` must have the member "type".',
        '{"index": 0}',
        'Add "type": "worker".',
    ),
    (
        text_of(task={"type": "ps"}),
        '`task` must have the member "index".',
        '{"type": "ps"}',
        'Add "index": 0.',
    ),
    *((with_task(type, 0), f"`task.type` {NAME_RULE}", shown(type), NAME_FIX) for type in NOT_TYPES),
    (with_task(["x"], 0), f"`task.type[0]` {NAME_RULE}", '"x"', NAME_FIX),
    *the_same(
        "`task.type` must be one job name, not a list of several.",
        NAME_FIX,
        (with_task(["worker", "ps"], 0), '["worker", "ps"]'),
        (with_task([], 0), "[]"),
    ),
    *(
        (with_task("worker", index), f"`task.index` {INDEX_RULE}", shown(index), "Write it like 0.")
        for index in NOT_INDICES
    ),
    (with_task("worker", [-1]), f"`task.index[0]` {INDEX_RULE}", "-1", "Write it like 0."),
    *the_same(
        "`task.index` must be one number, not a list of several.",
        "Write it like 0.",
        (with_task("worker", [0, 1]), "[0, 1]"),
        (with_task("worker", []), "[]"),
    ),
    (
        with_task("ps", 0),
        "`task.type` must be a job of the cluster (worker), or evaluator.",
        '"ps"',
        "Add the addresses of `cluster.ps`, or correct the type.",
    ),
    (
        with_task("worker", 2),
        "`task.index` must be from 0 to 1: the cluster has 2 worker tasks, counted from 0.",
        "2",
        "Correct the index, or add addresses to `cluster.worker`.",
    ),
    (
        text_of(cluster={"worker": A, "chief": B}, task={"type": "chief", "index": 1}),
        "`task.index` must be 0: the cluster has 1 chief task, counted from 0.",
        "1",
        "Correct the index: a cluster has at most one chief.",
    ),
]
