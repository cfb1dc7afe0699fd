"""What is trained on one, two and three workers to compare the results: one small function per case, in
cases_of_models.py and cases_of_data.py.

A case is the function that a user would write: it builds and compiles a Keras 3 model. Its decorator
holds what the model is trained on, where that is not `EXAMPLES`, and the arguments of `fit`:

    @case(data=examples(97), class_weight={0: 1.0, 1: 3.0})
    def my_case():
        return dense(optimizers.Adam(0.01))

    make equality T=my_case

Data is a tuple of arrays (x[, y[, sample_weight]]), or a function that makes an ordinary `tf.data`
pipeline of global batches. `fit` under the strategy gets arrays as a pipeline that shuffles (`arrays=True`:
as they are), `distributed_fit()` as they are; `evaluate` gets a pipeline and `predict` arrays.
"""

import cases_of_data as cases_of_data
import cases_of_models as cases_of_models
import cases_of_nets as cases_of_nets
import cases_of_ordinary as cases_of_ordinary
import cases_of_own_steps as cases_of_own_steps
import cases_of_rounding as cases_of_rounding
import cases_of_steps as cases_of_steps
import cases_of_virtual as cases_of_virtual
import cases_of_xla as cases_of_xla
from case import CASES as CASES  # which these fill
