"""The only place that uses private names of TensorFlow and Keras.

Tested with the versions of `tfdistr.supported`, by `make versions`. Each function documents the private name
that it needs, and why no public name is enough. If versions differ, it handles each of them and documents the
difference. When a new version breaks a private name, change these files.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from tfdistr.supported import check as _check

# Before the private names, which another version may not have.
_check({"TensorFlow": tf.__version__, "Keras": keras.__version__})

from tfdistr.errors import TfdistrError
from tfdistr.tf_internals.keras_loop import (
    KerasCall,
    all_layers,
    build_by_keras,
    build_instead,
    call_on_this_thread,
    changes_of_keras_loop,
    existing_seed_generator,
    given_metrics,
    global_seed_generator,
    initial_epoch,
    keras_builds_model,
    keras_call,
    keras_is_symbolic,
    layers_with_generators,
    metrics_or_logs,
    no_new_seed_generator,
    on_end_of_data,
    overrides,
    pass_epochs,
    reduce_step_logs,
    seed_generators,
    trace_without_effect,
)
from tfdistr.tf_internals.keras_objects import (
    WRAPPERS,
    Exclusions,
    GraphCall,
    exclude,
    exclusions_of,
    functions_of,
    given_losses,
    graph_calls,
    has_trainable_flag,
    in_safe_mode,
    input_ranks,
    is_of_library,
    loading_with,
    made_layers,
    named,
    names_in,
    names_of_libraries,
    own_variables,
    plain_properties,
    policy_of,
    set_policy,
    set_safe_mode,
    stateful_layers,
    states_of_rows,
    undisturbed_session,
    wrapped_function,
)
from tfdistr.tf_internals.keras_optimizers import (
    Apply,
    adds_rows,
    apply_sums,
    as_tensors,
    fewer_passes,
    optimizer_at_work,
    optimizer_hooks,
    optimizers_of,
    row_lookups,
    trained_variables,
    with_inner_optimizers,
)
from tfdistr.tf_internals.keras_own import (
    TRACE_IN_PROCESS,
    compile_arguments,
    flush_events,
    function_of_r,
    observed_batch_statistics,
    observed_draws,
    random_generators,
    serialized,
    silent_batch_statistics,
    undisturbed_random_numbers,
    variables_of,
    whole_configs,
)
from tfdistr.tf_internals.keras_scope import (
    compiling,
    on_new_variable,
    strangers,
    strategy_of_model,
    was_trained,
)
from tfdistr.tf_internals.keras_step import (
    OverBatch,
    RowsOfAll,
    SharedLoss,
    all_metrics,
    attached,
    compiled_parts,
    is_of_sums,
    keras_prediction,
    keras_step,
    loss_shares,
    overridden,
    replaced_losses,
    with_attributes,
)
from tfdistr.tf_internals.pipeline_graph import (
    cache_files,
    first_elements,
    order_seeds,
    peek,
    rewritten,
    unseeded_parts,
)
from tfdistr.tf_internals.pipelines import (
    StatefulPipeline,
    dense_slices,
    deserialized_dataset,
    global_seed,
    makes_batches,
    map_function,
    node_inputs,
    node_lists,
    node_name,
    nodes_after,
    python_ops,
    record_iterator,
    reshuffles,
    serialized_dataset,
    source_files,
    waits_for_shards,
    walk_pipeline,
)
from tfdistr.tf_internals.random_draws import Draws, alike_for_all_rows, eager_draws
from tfdistr.tf_internals.runtime import (
    abort_collectives,
    configure_coordination,
    context_initialized,
    delete_key,
    device_of,
    failed_tasks,
    get_key,
    is_part_of,
    look_quietly,
    loop_of,
    make_again,
    on_eager_operation,
    onednn_is_on,
    report_error,
    set_key,
    take_back_sigterm,
    traced_for_each_job,
    wait_at_barrier,
)
from tfdistr.tf_internals.strategy import (
    MirroredExtended,
    MultiWorkerExtended,
    OneDeviceExtended,
    ShareScope,
    is_seed,
    logs_are_metrics,
    seed_offset,
    tape_is_active,
)

# AutoGraph replaces an error by an error of another class, unless the error's class forbids it.
TfdistrError.ag_pass_through = True  # type: ignore[attr-defined]
