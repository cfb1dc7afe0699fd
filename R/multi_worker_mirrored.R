# The strategy for calls of Keras's fit(). In Python: strategies/multi_worker_mirrored.py.

#' A strategy that trains Keras 3 models on one or many workers
#'
#' A drop-in for TensorFlow's `tf$distribute$MultiWorkerMirroredStrategy()`. Under it, `fit`, `evaluate` and
#' `predict` of Keras 3 give the result of one worker, also with R functions as loss, metric or callback. Make
#' it before anything else uses TensorFlow, such as a model or a dataset. Build and compile the model in its
#' scope. Make the same calls on every worker, with batches of the global batch size. [distributed_fit()] does
#' all this for you.
#'
#' The cluster is the tasks in the environment variable TF_CONFIG (see [tf_config()]), or the
#' processes that `mpiexec` or `srun` has started. With neither, the strategy is for one worker.
#'
#' @param cluster_resolver A `tf$distribute$cluster_resolver$ClusterResolver` that describes the cluster; by
#'   default TF_CONFIG does.
#' @param communication_options A `tf$distribute$experimental$CommunicationOptions()`. `implementation` is the
#'   same as `communication`: AUTO is "auto". There is none for MPI. `bytes_per_pack` of 0 is the default. A
#'   collective that takes longer than `timeout_seconds` is an error. Create the options in the call, as in
#'   the example: where keras3 is attached, the first use of `tf` makes a tensor.
#' @param ... Not used.
#' @param communication String: the backend of the collectives: TensorFlow's "ring" or "nccl" (the ring
#'   without GPUs, or with two workers on one GPU, and the chief says so), "mpi" (the processes that `mpiexec`
#'   has started, or those in TF_CONFIG, which then need MPICH but no `mpiexec`), or "auto" (the default):
#'   NCCL if each worker sees a GPU of its own, MPI if none sees a GPU, all have the same MPICH, and they can
#'   connect to each other, else the ring.
#' @param gradient_dtype String: the type in which gradients are sent in the steps of Keras's `fit`:
#'   "float32", or "bfloat16", which halves the bytes and keeps 8 significant bits. The sums are added to the
#'   weights in float32.
#' @param virtual_workers Number of virtual workers, at least the number of workers; `NULL` for none. The
#'   results of `fit`, `evaluate` and `predict` then have the same bits on any number of workers: they depend
#'   on the number of virtual workers instead. Each operation has one thread.
#' @param bytes_per_pack Number: gradients are sent in packs of about this many bytes; by default 4 MiB.
#' @param start_timeout Seconds that the workers wait for each other at the start.
#' @param heartbeat_timeout Seconds without a heartbeat after which a worker counts as lost.
#' @return The Python object, a `tf.distribute.Strategy`. Beside TensorFlow's methods it has `$num_workers`,
#'   `$worker_index` (from 0) and `$is_chief`.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form, or if
#'   `communication_options` is combined with `communication` or `bytes_per_pack`;
#'   `tfdistr_error_cluster_config` if TF_CONFIG is not valid; `tfdistr_error_cluster_start` if TensorFlow is
#'   in use already, the port can't be used, or other workers are missing; `tfdistr_error_job_mismatch` if the
#'   workers have different addresses, or different versions of packages.
#' @source <https://github.com/keras-team/keras/issues/20585>: why the stock strategy can't train Keras 3
#'   models.
#' @examplesIf (interactive() || nzchar(Sys.getenv("NOT_CRAN"))) && requireNamespace("keras3", quietly = TRUE)
#' library(keras3)
#' strategy <- multi_worker_mirrored_strategy()
#' with(strategy$scope(), {
#'   model <- keras_model_sequential() |>
#'     layer_dense(1) |>
#'     compile("sgd", "mse")
#' })
#' x <- matrix(rnorm(64), ncol = 2)
#' history <- model |> fit(x, x[, 1], batch_size = 16, epochs = 2, verbose = 0)
#' length(history$metrics$loss)
#' \dontrun{
#' # In a job on GPUs, with library(tensorflow):
#' strategy <- multi_worker_mirrored_strategy(
#'   communication_options = tf$distribute$experimental$CommunicationOptions(implementation = "NCCL")
#' )
#' }
#' @family functions for a loop of your own
#' @export
multi_worker_mirrored_strategy <- function(cluster_resolver = NULL, communication_options = NULL, ...,
                                           communication = NULL, gradient_dtype = "float32",
                                           virtual_workers = NULL, bytes_per_pack = NULL,
                                           start_timeout = 300, heartbeat_timeout = 30) {
  refuse_dots("multi_worker_mirrored_strategy", ...)
  reload_environ()
  say_if_session()
  bytes_per_pack <- whole_as_integer(bytes_per_pack)
  before_import_hooks(call_core("MultiWorkerMirroredStrategy"))
}
