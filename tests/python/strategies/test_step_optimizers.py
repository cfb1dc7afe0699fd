"""Optimizers of a step that tfdistr cannot find. (tests/equality has steps with several optimizers.)"""

import pytest
from clusters import run_cluster

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(("kind", "mpi"), [("in the step", True), ("global", False)])
def test_an_optimizer_that_the_model_does_not_hold_is_refused(kind, mpi):
    ended = run_cluster("step_optimizers.py", 2, [kind], mpi=mpi, timeout=120)
    for worker in ended:
        assert worker.status != 0
        assert "must be an attribute of the model or of one of its layers" in worker.output
        assert "an optimizer of the class SGD" in worker.output
        assert "self.d_optimizer = ..." in worker.output
