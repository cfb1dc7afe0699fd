"""A worker that meets its peers, without TensorFlow, and says when one of them is lost.

Usage: lifelines.py JSON   (JSON: tasks, own, serves, heartbeat_timeout)

"goodbye" or "fork" on standard input have it leave, or fork. "busy" has it keep Python's lock for 4 seconds.
"""

import ctypes
import json
import os
import queue
import signal
import sys
import threading

from tfdistr.rendezvous.meeting import meet
from tfdistr.rendezvous.protocol import bind

given = json.loads(sys.argv[1])
lifelines = meet(given["tasks"], given["own"], {}, 30)
if given["serves"]:  # as TensorFlow's server does, which takes the port over
    server = bind("127.0.0.1", int(given["tasks"][given["own"]].rpartition(":")[2]))
    server.listen()
said: queue.Queue[str] = queue.Queue()
lifelines.watch(
    said.put, lambda name: f"lost {name}", lambda name: f"no heartbeat of {name}", given["heartbeat_timeout"]
)


def listen() -> None:
    for line in sys.stdin:
        if line == "goodbye\n":
            lifelines.say_goodbye()
            said.put("left")
        elif line == "busy\n":
            ctypes.PyDLL(None).sleep(4)
            said.put("was busy")
        elif os.fork() == 0:
            signal.alarm(20)  # it lives on, with copies of what its parent had open
            os.close(1)
            signal.pause()
        else:
            said.put("forked")


threading.Thread(target=listen, daemon=True).start()
print("together", flush=True)
while True:
    print(said.get(), flush=True)
