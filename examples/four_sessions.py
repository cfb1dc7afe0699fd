"""Open four sessions by hand on this machine, each with a TF_CONFIG of its own, and wait for them.

    .venv/bin/python examples/four_sessions.py PORTS SCRIPT [ARGUMENT ...]

PORTS are those of the sessions, such as 10087,10088,10089,10090. Each session runs SCRIPT as a worker; the
first is the chief. With two_machines/task.py and /tmp/digits.keras, what they print is at the end:

    worker 0 of 4 tasks: loss 0.3620, accuracy 0.8917
    worker 1 of 4 tasks: loss 0.3620, accuracy 0.8917
    worker 2 of 4 tasks: loss 0.3620, accuracy 0.8917
    worker 3 of 4 tasks: loss 0.3620, accuracy 0.8917

If one session fails, the others are ended.
"""

import os
import subprocess
import sys
import tempfile
import time

import tfdistr

ports, *script = sys.argv[1:]
plan = tfdistr.tf_config(worker=[f"127.0.0.1:{port}" for port in ports.split(",")])
outputs = [tempfile.TemporaryFile("w+") for _ in plan]  # noqa: SIM115
sessions = [
    subprocess.Popen([sys.executable, *script], env=os.environ | env, stdout=output)
    for env, output in zip(plan.environments(), outputs, strict=True)
]
try:
    while None in (statuses := [session.poll() for session in sessions]) and not any(statuses):
        time.sleep(0.1)
finally:  # also after Ctrl-C
    for session in sessions:
        session.kill()  # has no effect on one that has exited
        session.wait()

for output in outputs:
    output.seek(0)
    print(output.read(), end="")
for index, status in enumerate(statuses):
    if status:
        sys.exit(f"Session {index} exited with status {status}. The others were ended.")
