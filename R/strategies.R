# The strategies of distributed_fit(), each with its options. In Python: jobs/strategies/.

#' Strategies of distributed_fit()
#'
#' Each function chooses how workers train together, with the options of this way. Pass its result to
#' [distributed_fit()] as `strategy`. A name, such as `strategy = "mirrored"`, is the same as the function
#' without options.
#'
#' * `multi_worker_mirrored()`: choose equal workers, each with a copy of the model, which exchange their
#'   gradients in each step. This is the default.
#' * `mirrored()`: choose several devices of one process, each with a copy of the model. The model must have
#'   no R functions.
#' * `one_device()`: choose one device of this process.
#' * `parameter_server()`: choose workers that compute gradients, and parameter servers that hold the weights.
#'   It needs `local_cluster(workers = 2, ps = 1)`, or a TF_CONFIG that makes this process the chief, while
#'   `tfdistr server` runs the other tasks.
#' * `model_parallel()`: choose a model whose layers are on several devices, or on the workers of a cluster.
#'
#' @param communication String: the backend for the gradients, "ring" and "nccl" (one GPU for each worker) of
#'   TensorFlow, "mpi", or "auto": NCCL if each worker sees a GPU of its own; MPI if none sees a GPU, all have
#'   the same MPICH, and they can connect to each other; else the ring. The chief says which, and why. The
#'   result says which backend was used.
#' @param gradient_dtype String: the type in which workers send gradients, "float32", or "bfloat16", which
#'   halves the bytes and rounds each gradient to 8 significant bits.
#' @param start_timeout Without `cluster`: seconds within which all workers or servers must have joined; by
#'   default 300. With `cluster`, pass it to the cluster.
#' @param heartbeat_timeout Without `cluster`: seconds without a heartbeat after which a worker counts as
#'   lost; by default 30. All processes of a job must have the same value. For `parameter_server()` and
#'   `model_parallel()`: seconds that the servers may outlive this process. With `cluster`, pass it to the
#'   cluster.
#' @param devices Character vector: names such as `c("gpu:0", "gpu:1")`; by default all GPUs.
#' @param device String: the name of a device, such as "gpu:0"; by default the first GPU, or the CPU.
#' @param update String: "async" (each worker takes whole batches, and its gradient is applied when it
#'   arrives) or "sync" (each batch is split over the workers, and the mean of their gradients is applied
#'   once).
#' @param replicas_to_aggregate With `update = "sync"`: the number of workers whose shares of the batch make a
#'   step; later shares are dropped. By default all workers.
#' @param placement Named character vector: the place of each layer by its name, such as
#'   `c(dense_1 = "worker 0", dense_2 = "worker 1 gpu:0")`, or `c(dense_1 = "cpu:0")` for devices of this
#'   process. Or a function of a layer that returns its place or `NULL`. A layer without a place has the place
#'   of the layer before it.
#' @return The strategy, a list of class `tfdistr_strategy`.
#' @section Errors:
#'   * `multi_worker_mirrored()`, `parameter_server()` and `model_parallel()`: `tfdistr_error_argument` if an
#'     argument is not of that form. [distributed_fit()] checks the devices.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' multi_worker_mirrored(communication = "ring")
#' parameter_server(update = "sync", replicas_to_aggregate = 2)
#' model_parallel(c(dense_1 = "worker 0", dense_2 = "worker 1"))
#' @family functions for training
#' @export
multi_worker_mirrored <- function(communication = "auto", gradient_dtype = "float32", start_timeout = NULL,
                                  heartbeat_timeout = NULL) {
  new_options("strategy", "multi_worker_mirrored")
}

#' @rdname multi_worker_mirrored
#' @export
mirrored <- function(devices = NULL) {
  new_options("strategy", "mirrored")
}

#' @rdname multi_worker_mirrored
#' @export
one_device <- function(device = NULL) {
  new_options("strategy", "one_device")
}

#' @rdname multi_worker_mirrored
#' @export
parameter_server <- function(update = "async", replicas_to_aggregate = NULL, start_timeout = NULL,
                             heartbeat_timeout = NULL) {
  new_options("strategy", "parameter_server")
}

#' @rdname multi_worker_mirrored
#' @export
model_parallel <- function(placement, start_timeout = NULL, heartbeat_timeout = NULL) {
  new_options("strategy", "model_parallel")
}

#' Say what happens when a worker fails or makes no progress
#'
#' Pass the result to [distributed_fit()] as `failures`. Without it, the first failure ends the job, and a
#' step may take any time.
#'
#' @param max_restarts Number: how often to restart all workers of `cluster` from the last checkpoint after a
#'   worker has failed. Restarts that led to a newer checkpoint do not count.
#' @param min_workers Number: the least number of workers with which the job may continue when `max_restarts`
#'   is used up. It continues without the worker that failed last, and with the same global batch. `NULL` to
#'   give up instead.
#' @param step_timeout Number of seconds without a step of training or validation after which a worker fails.
#'   The error says where its main thread is in Python and in the R functions of the job. The time before the
#'   first step, in callbacks and in checkpoints counts. `NULL` for no limit.
#' @param nan `"explain"` ends the job when the loss or the gradients of a step are not finite, at the end of
#'   the TensorFlow call that saw it. The step is then replayed, and the error names the first tensor that was
#'   not finite, and the rows that cause it; see [replay()]. It needs `run_dir`. `NULL`: the training
#'   continues.
#' @return The reaction to failures, a list of class `tfdistr_failures`.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' on_failure(max_restarts = 3, step_timeout = 600)
#' @family functions for training
#' @export
on_failure <- function(max_restarts = 0, min_workers = NULL, step_timeout = NULL, nan = NULL) {
  new_options("failures", "on_failure")
}

#' Give each worker a batch of its own size, so that the global batch grows with the number of workers
#'
#' Pass the result to [distributed_fit()] as `batch_size`. A number there is the size of the global batch,
#' which the number of workers does not change.
#'
#' @param batch_size Number of examples in the batch of each worker.
#' @param scale_learning_rate String: "linear" multiplies the learning rate by the number of workers, "sqrt"
#'   by its square root, "none" does not change it; see [scaled_learning_rate()].
#' @param warmup_epochs Number of epochs over which the learning rate rises, in equal parts from step to step,
#'   to its scaled value. With `steps_per_execution` above 1, the steps of one execution have the rate of
#'   their first step.
#' @return The batch size, a list of class `tfdistr_batch_size`.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form, or if `warmup_epochs` has
#'   nothing to rise to.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' per_worker(64, scale_learning_rate = "linear", warmup_epochs = 5)
#' @family functions for training
#' @export
per_worker <- function(batch_size, scale_learning_rate = "none", warmup_epochs = 0) {
  new_options("batch_size", "per_worker")
}

# Options of a job.
new_options <- function(kind, name, call = rlang::caller_env(), of = rlang::caller_fn()) {
  new_description(name, c(paste0("tfdistr_", kind), "tfdistr_options"), call, of)
}
