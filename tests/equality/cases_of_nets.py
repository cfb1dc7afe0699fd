"""Cases that cannot be split row by row, or whose parts are easily lost on the way.

    make equality T=barlow_twins
    make equality SET=cases_of_nets

On several workers each must equal one worker, or a warning must name the reason, or an error must refuse it:
a silent difference is the one outcome that none of them may have.
"""

import nets_layers as nets_layers
import nets_losses as nets_losses
import nets_metrics as nets_metrics
import nets_state as nets_state
import nets_steps as nets_steps
from case import CASES as CASES  # which these fill
