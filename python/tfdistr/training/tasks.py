"""What the workers of a job do, by the name of the task.

Each is called as ``task(job, strategy, on_event, run_dir, preemption)``; see ``train()``.
"""

from __future__ import annotations

from tfdistr.training.evaluate import evaluate_job
from tfdistr.training.predict import predict_job
from tfdistr.training.train import train

TASKS = {"fit": train, "evaluate": evaluate_job, "predict": predict_job}
