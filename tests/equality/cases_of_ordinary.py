"""Cases of ordinary models, of which tfdistr must not warn.

    make equality T=transformer_encoder
    make equality SET=cases_of_ordinary

Each equals one worker without a warning. With `random`, workers draw other numbers than one worker by nature:
such a case trains the same weights on all workers, and is as quiet.
"""

import ordinary_layers as ordinary_layers
import ordinary_losses as ordinary_losses
import ordinary_models as ordinary_models
import ordinary_training as ordinary_training
from case import CASES as CASES  # which these fill
