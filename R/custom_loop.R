# A custom training loop: a strategy by name, its share of the data, the losses, the chief. In Python:
# jobs/strategies/, custom_loop.py, losses.py and place.py.

#' Building blocks for a custom training loop
#'
#' * `make_strategy()`: make a strategy by its name. Call it first on every worker, before anything else uses
#'   TensorFlow, such as a model or a dataset.
#' * `distribute()`: give this worker's part of every batch of a dataset.
#' * `is_chief()`: return whether this process writes checkpoints and logs for all workers.
#' * `worker_index()`: return the index of this worker, from 0.
#' * `num_workers()`: return the number of workers that train.
#'
#' See `vignette("custom-loops")` for a whole loop. [average_loss()] describes its losses.
#'
#' The environment variable TF_CONFIG describes the cluster (see [tf_config()]). Without TF_CONFIG, the
#' strategy is for one worker, or, if `mpiexec` or `srun` has started this process, for all ranks.
#'
#' `is_chief()`, `worker_index()` and `num_workers()` use the first of these that exists: the strategy whose
#' scope the call is in; the cluster in TF_CONFIG; the strategy that this process has made; the launcher of
#' this process (`mpiexec`, `srun`), whose rank 0 is the chief. They can be called before a strategy is made.
#' A process without a cluster is worker 0 of 1, and the chief.
#'
#' All workers get the same number of batches, in the order of the dataset. Where a batch has fewer rows than
#' there are workers, some workers get no rows. The losses and metrics stay right, but TensorFlow's
#' convolution and pooling can't learn from no rows. `dataset$batch(size, drop_remainder = TRUE)` avoids it.
#'
#' @param name String: "multi_worker_mirrored" (every worker has a copy of the model, and all make each step
#'   together), "mirrored" (the same for the devices of this process) or "one_device".
#' @param ... Options of the strategy. For "multi_worker_mirrored" see [multi_worker_mirrored_strategy()].
#'   "mirrored" has `devices`, names such as `c("gpu:0", "gpu:1")` (by default all GPUs that this process
#'   sees, or the CPU), and `cross_device_ops`, a `tf$distribute$CrossDeviceOps` that sums over the devices.
#'   "one_device" has `device`, such as "cpu:0". R functions in a model need one process for each device: on
#'   two devices of one process they are refused.
#' @param dataset A `tf.data.Dataset` in batches of the **global** size, in the same order on all workers:
#'   shuffle it with a seed.
#' @param strategy The strategy; by default the strategy whose scope the call is in.
#' @return `make_strategy()`: the Python object, a `tf.distribute.Strategy`. `distribute()`: the strategy's
#'   dataset, for [reticulate::iterate()]; pass its elements on as
#'   `strategy$run(step, args = reticulate::tuple(batch))`. `is_chief()`: `TRUE` or `FALSE`.
#'   `worker_index()`: a whole number, from 0; `NULL` in a task of TF_CONFIG that does not train.
#'   `num_workers()`: a whole number.
#' @section Errors:
#'   * `make_strategy()`: `tfdistr_error_argument` if an argument is not of that form;
#'     `tfdistr_error_cluster_config` if TF_CONFIG is not valid; `tfdistr_error_cluster_start` if TensorFlow
#'     is in use already, the port can't be used, or other workers are missing; `tfdistr_error_job_mismatch`
#'     if the workers have different addresses, or different versions of packages.
#'   * `distribute()`: `tfdistr_error_argument` if an argument is not of that form, or if there is no strategy
#'     although there are several workers; `tfdistr_error_cluster_config` if TF_CONFIG is not valid;
#'     `tfdistr_error_data_shard` if the dataset can't be split.
#'   * `is_chief()`, `worker_index()` and `num_workers()`: `tfdistr_error_cluster_config` if TF_CONFIG is not
#'     valid.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' strategy <- make_strategy("multi_worker_mirrored")
#' dataset <- load_dataset("digits")$dataset()$shuffle(1437L, seed = 1L)$batch(64L)
#' batches <- reticulate::iterate(distribute(dataset, strategy))
#' length(batches) == steps_per_epoch(1437, 64)
#' c(worker_index(), num_workers())
#' is_chief()
#' @family functions for a loop of your own
#' @export
make_strategy <- function(name = "multi_worker_mirrored", ...) {
  reload_environ()
  say_if_session()
  options <- lapply(named_dots(...), function(option) {
    # Python has no vectors with names.
    if (is.character(option) && !is.null(names(option))) as.list(option) else whole_as_integer(option)
  })
  arguments <- c(list(name), options)
  with_conditions(before_import_hooks(do.call(core(convert = TRUE)$make_strategy, arguments, quote = TRUE)))
}

#' @rdname make_strategy
#' @export
distribute <- function(dataset, strategy = NULL) {
  reload_environ()
  call_core("distribute")
}

#' @rdname make_strategy
#' @export
is_chief <- function() {
  reload_environ()
  call_core("is_chief")
}

#' @rdname make_strategy
#' @export
worker_index <- function() {
  reload_environ()
  call_core("worker_index")
}

#' @rdname make_strategy
#' @export
num_workers <- function() {
  reload_environ()
  call_core("num_workers")
}

#' Losses that add up over the workers
#'
#' * `average_loss()`: compute this replica's part of the mean loss of the global batch. It is right also
#'   where shares of a batch differ in size or have no rows.
#' * `regularization_loss()`: compute this replica's part of a loss that every replica has in full, such as L1
#'   and L2 of the weights.
#'
#' Call both in the function that `strategy$run()` runs. Keras's `optimizer$apply()` **sums** the gradients of
#' the replicas there, so each replica must compute its part of the loss of one worker. On N replicas, the
#' mean of `losses` in place of `average_loss()` gives N times the gradients. If `tf_function()` traces such a
#' step, a warning says so. Without a strategy they give the mean and the sum. In a step of Keras's `fit` use
#' `compute_loss()` instead.
#'
#' Further dimensions of `losses`, such as those of an image, are averaged, so that the loss does not grow
#' with the size of the image. As in Keras, weighted losses are divided by the number of examples, not by
#' the sum of the weights. Activity regularizers in `model$losses`, which are means over a replica's rows,
#' are exact where all shares have the same size.
#'
#' @param losses For `average_loss()` a tensor of shape `(rows, ...)`: the losses of this replica's rows, as
#'   a loss with `reduction = "none"` gives them. For `regularization_loss()` `model$losses`, a list of
#'   scalars (which may be empty), or a tensor, which is summed.
#' @param sample_weight Factors for the losses: a tensor or an array with the shape of `losses` or of its
#'   first dimensions; `NULL` for none.
#' @param global_batch_size Number of examples of the global batch, the same on all replicas. By default the
#'   replicas count the examples by one all-reduce of one number, so that a shorter last batch is right, too.
#' @return A scalar tensor of type float32, or float64 if `losses` is. 0 if there are no rows.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form, or if the call is in a
#'   strategy's scope but not in the function that `strategy$run()` runs.
#' @source <https://www.tensorflow.org/tutorials/distribute/custom_training>.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' average_loss(array(c(1, 2, 6)))
#' average_loss(array(c(1, 2, 6)), sample_weight = array(c(1, 0, 0.5)))
#' regularization_loss(list(0.5, 0.25))
#' @family functions for a loop of your own
#' @export
average_loss <- function(losses, sample_weight = NULL, global_batch_size = NULL) {
  call_core("average_loss")
}

#' @rdname average_loss
#' @export
regularization_loss <- function(losses) {
  call_core("regularization_loss")
}

# R's numbers are doubles, also where Python must have an int.
whole_as_integer <- function(value) {
  whole <- is.double(value) && length(value) == 1L && is.finite(value) && value == round(value)
  if (whole && abs(value) <= .Machine$integer.max) as.integer(value) else value
}
