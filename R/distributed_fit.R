#' Train a Keras 3 model on one or many workers
#'
#' The result is the same as with one worker. With `cluster`, the call starts, watches and ends the
#' workers. Without `cluster`, it joins the cluster that the environment variable TF_CONFIG describes, as the
#' task in TF_CONFIG, or the processes that `mpiexec` or `srun` has started: make the same call in every
#' process of the cluster (see [tf_config()]). With neither, the model is trained in this process.
#'
#' @section Arguments in five groups:
#'   * What to train: `model` and the arguments from `x` to `verbose`, which are those of keras3's `fit()`, in
#'     its order; `seed`, `virtual_workers`, `drop_remainder`.
#'   * Where to train: `cluster`.
#'   * How to train: `strategy`.
#'   * Batches that grow with the workers: `batch_size = per_worker(64)`.
#'   * Where the run is stored, and what happens when something fails: `run_dir`, `checkpoint_every`,
#'     `keep_checkpoints`, `resume`, `failures`.
#'
#' @section R functions in workers: `model`, `x`, `validation_data` and `callbacks` may be R functions. With
#'   `cluster` they are sent to the workers, which are R processes. The variables that they, and the functions
#'   that they call, use by name are sent, too: variables of the enclosing functions and of the global
#'   environment, such as data frames, arrays, other functions and Python modules (other Python objects if
#'   Python can pickle them), and S3, S4 and S7 methods for their classes. The workers attach the packages
#'   that this session has attached. They do not have what is found in other ways, such as by `options()`, or
#'   by `get()` of a name that the code makes. A connection or an external pointer is an error. Loss
#'   functions, metrics, functions for `dataset$map()` and callbacks can be R functions, too.
#'
#' @section Arrays and data frames: Arrays keep their dimensions; the first dimension counts the examples. A
#'   factor in `y` becomes the numbers of its levels, from 0; elsewhere it becomes text. A data frame becomes
#'   a matrix if all columns are vectors of numbers or logical values, else a named list of columns. Later
#'   data (`validation_data`, and the data of `predict()` and `evaluate()`) is matched by names: columns of
#'   data frames and matrices, and levels of factors. Only vectors of type double may have missing values,
#'   which are `NaN` in Python; a warning tells of those in `x`. Numbers of type double have Keras's type in
#'   a batch, float32 by default; integers and logical values keep their types. A vector of another class
#'   (`Date`, `POSIXct`, `difftime`, `integer64`), a sparse matrix, text of an unknown encoding, and a list
#'   that has a name twice are errors. So is `NA` as any other argument. A large array is copied once: where
#'   it is read, or into the file that all workers of a host share.
#'
#' @param model Function without arguments that builds and compiles the model. It is called in every worker,
#'   inside the strategy's scope. Or a compiled model: the workers get its architecture, its weights, its
#'   optimizer with its state, and the arguments of `compile()`. Afterwards the model has the trained weights
#'   and the state of the optimizer, as after `fit()`. A model with R functions cannot be sent to workers.
#'   Then pass a function. Or a result of `distributed_fit()`: training continues with a copy of its model.
#'   Or a function of a Python file, as [python_function()] gives it.
#' @param x Inputs: an array, a (named) list of arrays, a data frame, a table of the packages arrow or
#'   nanoarrow (pyarrow reads it, without a copy), a result of [load_dataset()], a `tf.data.Dataset` (of
#'   examples, or in batches of the global size), a `PyDataset`, a Python generator, or a function. A
#'   function may be a generator: it returns a batch, such as `list(x, y)`, at each call, and `NULL` at the
#'   end of the data. Or it is called as `x(ctx)`, or `x()`, in every worker and returns a
#'   `tf.data.Dataset`: of batches of the global size, or, with `batch_size`, of single examples, which
#'   tfdistr shuffles, batches and splits. `ctx` has
#'   `$num_workers`, `$index` (from 0), `$is_chief`, `$batch_size` (of this worker) and `$shard(dataset)`,
#'   which takes this worker's share before an expensive `$map()`. Examples that can be looked up by index
#'   (arrays, data sets, pipelines of tensors) are read and decoded only by the worker that uses them.
#' @param y Targets, where `x` is arrays: a vector, an array or a factor.
#' @param ... Not used: the arguments after `y` must be named.
#' @param batch_size Number of examples in a **global** batch: the number of workers does not change the
#'   result. `NULL` means 32 for single examples. A data set of batches, a `PyDataset` and a generator keep
#'   their batches, and the data set that a function returns is taken as ready batches. Or `per_worker(64)`,
#'   for a global batch that grows with the number of workers; see [per_worker()].
#' @param epochs Number of epochs, with those before `initial_epoch`.
#' @param callbacks List of Keras callbacks, or a function that returns such a list in each worker. Callbacks
#'   that write, and callbacks that [chief_only()] has marked, run on the chief only. If a callback stops the
#'   training on one worker, all workers stop. Callbacks with R code, such as those of
#'   `keras3::callback_lambda()`, are made in each worker by the code of the argument, so write them in the
#'   call: `callbacks = list(callback_lambda(...))`.
#'   The functions of [in_session()] run in this session, and need the list.
#' @param validation_split Fraction of the examples, at the end of arrays `x`, that the validation gets
#'   instead of the training.
#' @param validation_data Like `x`, or a list `list(x, y)` or `list(x, y, sample_weight)` of arrays, which may
#'   have these names.
#' @param shuffle Whether each epoch has its own order of the training examples.
#' @param class_weight Named numeric vector or list: the weight in the loss of each class, by its number or,
#'   if `y` is a factor or text in files, by its level.
#' @param sample_weight Numeric vector: the weight in the loss of each example, where `x` is arrays; not with
#'   `class_weight`.
#' @param initial_epoch Number of the first epoch, counted from 1, as in keras3: the training continues there,
#'   with the examples in the order of that epoch.
#' @param steps_per_epoch Number of steps of an epoch; by default as many as one pass over the data has. With
#'   it, the data repeats as often as needed.
#' @param validation_steps Number of steps of a validation; by default one pass.
#' @param validation_batch_size Number of examples in a global batch of the validation; by default as in the
#'   training.
#' @param validation_freq Number of epochs after which there is a validation, or the numbers (from 1) of the
#'   epochs that have one.
#' @param verbose "auto" (1 if the session is interactive, 0 in a knitr document, else 2), 0 (silent), 1
#'   (progress display) or 2 (one line for each epoch).
#' @param seed Number: seed of the initial weights, the order of the examples, random layers and R's random
#'   numbers in these functions; `NULL` draws a seed from R's random numbers, so that `set.seed()` determines
#'   it.
#' @param virtual_workers Number of shares of each global batch, at least the number of workers. The result
#'   then is bitwise identical on any number of workers. It depends on `virtual_workers` instead, because each
#'   share is computed by itself, with one thread, and sums have a fixed order. `NULL` for the faster way,
#'   where results of different numbers of workers differ by rounding, which a long training enlarges.
#' @param drop_remainder Whether the last batch of each pass over the training data is dropped where it is
#'   not full; see [steps_per_epoch()].
#' @param cluster Where to train: [local_cluster()], [ssh_cluster()], [slurm_cluster()] or
#'   [ray_cluster()].
#' @param strategy The name of a strategy, or a strategy with options: [multi_worker_mirrored()] (equal
#'   workers), [mirrored()] (several devices of one process, for models without R functions), [one_device()],
#'   [parameter_server()] (weights on servers) or [model_parallel()] (layers on several devices or workers).
#' @param run_dir String: new or empty folder for logs and for the files that the processes exchange; by
#'   default a temporary folder (for clusters of several hosts in the working directory, which all hosts must
#'   see). A temporary folder is removed when R ends, unless the job failed. Or the URL of a store, such as
#'   "s3://bucket/run" (with the Python package s3fs) or "gs://bucket/run" (gcsfs): checkpoints are uploaded
#'   while the job trains, and logs and results at its end. Another machine continues from there with
#'   `resume`. The job then has a temporary folder, too. Without `cluster`, only jobs with checkpoints use
#'   `run_dir`.
#' @param checkpoint_every Number of steps after which to write a checkpoint into `run_dir`, or "epoch". A
#'   checkpoint has the whole state of the training, R's random numbers included, so that a resumed run is
#'   bitwise identical to an uninterrupted one (not with asynchronous parameter servers). Models with a loop
#'   or a `fit()` of their own take "epoch" only. `NULL` for never, or, with restarts or `resume`, for
#'   "epoch".
#' @param keep_checkpoints How many checkpoints are kept: the last ones. [replay()] starts at them. The last
#'   one with finite weights is never removed.
#' @param resume Whether to continue the run in `run_dir`, which failed, was cancelled or preempted, or had
#'   fewer epochs. It must be a run of the same job; Python may have begun it. If the folder is new or empty,
#'   the job begins; if the run is complete, its result is returned.
#' @param failures What happens when a worker fails or makes no progress:
#'   `on_failure(max_restarts = 3, step_timeout = 600)`; see [on_failure()]. By default the first failure ends
#'   the job, and a step may take any time.
#' @return A list of class `tfdistr_fit`:
#'   * `history`: a list of numeric vectors: the values of each metric, one for each epoch. A metric with
#'     several values, such as `metric_f1_score()`, has a matrix with a row for each epoch.
#'   * `metrics`: a list of numbers: the metrics after the last epoch.
#'   * `model`: the trained model, in this process. It is built on first use.
#'   * `params`: a list of the numbers of the job: global batch size (`NULL` if `x` gave batches; `batches_of`
#'     then says what gave them), epochs, steps, seed, number of workers. With parameter servers, `passes` is
#'     how often the workers together have used each example.
#'     `communication` is the backend that has carried the gradients between the workers: "mpi", "ring" or
#'     "nccl", whatever the argument was; "none" if one worker has trained, or if the workers of the strategy
#'     exchange no gradients. `differences` says, in sentences, why the result is not that of one worker, as
#'     far as tfdistr knows; it is empty if it is. `xla` is what XLA has compiled of the steps: "whole steps",
#'     "between exchanges" (on several workers or devices) or "nothing".
#'   * `workers`: a data frame with one row for each worker: `index`, `host`, `pid`, `status`, `seconds` and
#'     `log`, the path of its output (`NA` if it was this process). With parameter servers it has a row for
#'     each process, and also `task`, `local_steps` (how many gradients of a worker were applied) and
#'     `dropped`.
#'   * `run_dir`: the folder with the logs, or the URL of the store; `NULL` if the job ran in this process
#'     without a store.
#' @section Errors: All have the class `tfdistr_error`, and
#'   * `tfdistr_error_argument`: an argument is not of the form above.
#'   * `tfdistr_error_cluster_config`: TF_CONFIG is not valid.
#'   * `tfdistr_error_cluster_start`: the workers could not be started or did not find each other.
#'   * `tfdistr_error_data_shard`: the data can't be split over the workers.
#'   * `tfdistr_error_job_mismatch`: the processes of a cluster that were started by hand would train
#'     different jobs.
#'   * `tfdistr_error_version`: TensorFlow or Keras has a version that tfdistr does not work with.
#'   * `tfdistr_error_worker_failed`: a worker failed, and the others were stopped. The condition has the
#'     fields `worker` (its index), `host`, `pid`, `exit_code` (negative for a signal), `traceback`, `log` (a
#'     path) and `workers` (a data frame as above).
#'   * `tfdistr_error_checkpoint`: with a store as `run_dir`, not all of the run is there at the end. Or
#'     another job has begun to write to the same run. Or the disk of `run_dir` is full or read-only.
#'   * `tfdistr_error_job_stopped`: with checkpoints, a preemption: this process or a worker got SIGTERM,
#'     which Slurm and Kubernetes send before they end a process. A checkpoint was written after the current
#'     step. A script that does not catch it ends with exit status 75.
#'   * `tfdistr_error_not_finite`: with `on_failure(nan = "explain")`, the loss or the gradients of a step are
#'     not finite; the error says why.
#'   * `tfdistr_error_step_timeout`: this process trains, and has made no step for the `step_timeout` of
#'     `failures`.
#'
#'   The field `exception` of the condition is the error of the Python core. If this process trains, an error
#'   in `model` or another function is raised unchanged.
#' @section Warnings: They have the class `tfdistr_warning`, and are shown at once. Each one is given once,
#'   though several workers have it. A warning of your own code in a worker arrives, too: its message begins
#'   with the worker, which is also in the field `worker`. If a handler leaves the call because of a warning,
#'   or `options(warn = 2)` makes it an error, the job ends, and so do its workers. One of the class
#'   `tfdistr_warning_batch_loss` says that a step of the model uses several rows of a batch at once,
#'   so the result on several workers is not that of one worker; see [gather()].
#' @seealso [plot.tfdistr_fit()] for the methods of the result.
#' @examplesIf (interactive() || nzchar(Sys.getenv("NOT_CRAN"))) && requireNamespace("keras3", quietly = TRUE)
#' library(keras3)
#' model <- function() {
#'   keras_model_sequential() |>
#'     layer_flatten() |>
#'     layer_dense(10, activation = "softmax") |>
#'     compile("adam", "sparse_categorical_crossentropy", metrics = "accuracy")
#' }
#' fit <- distributed_fit(
#'   model, load_dataset("digits"),
#'   cluster = local_cluster(workers = 2), epochs = 3, seed = 1
#' )
#' fit
#' test <- load_dataset("digits", "test")$arrays()
#' dim(predict(fit, test[[1]]))
#' @family functions for training
#' @export
distributed_fit <- function(model, x = NULL, y = NULL, ..., batch_size = NULL, epochs = 1, callbacks = NULL,
                            validation_split = 0, validation_data = NULL, shuffle = TRUE,
                            class_weight = NULL, sample_weight = NULL, initial_epoch = 1,
                            steps_per_epoch = NULL, validation_steps = NULL, validation_batch_size = NULL,
                            validation_freq = 1, verbose = "auto", seed = NULL, virtual_workers = NULL,
                            drop_remainder = FALSE, cluster = NULL, strategy = "multi_worker_mirrored",
                            run_dir = NULL, checkpoint_every = NULL, keep_checkpoints = 2, resume = FALSE,
                            failures = NULL) {
  refuse_dots("distributed_fit", ...)
  written <- written_callbacks(callbacks, substitute(callbacks), rlang::caller_env())
  callbacks <- written$value
  arguments <- mget(setdiff(names(formals()), c("...", "verbose")))
  # Before any other use of the generator: set.seed() before the call determines the seed.
  drawn <- if (is.null(seed)) sample.int(.Machine$integer.max, 1L)
  display <- make_display(verbose)
  on.exit(display$close())
  reload_environ()
  earlier <- if (inherits(model, "tfdistr_fit")) model
  if (!is.null(earlier)) model <- model_function(earlier) %||% python_fit(earlier)
  placement <- attr(strategy, "arguments")$placement
  if (!is.null(cluster)) callbacks <- callbacks_for_workers(written)
  by_code <- inherits(callbacks, "tfdistr_callback_code")
  functions <- list(
    model = model, data = x, validation = validation_data,
    callbacks = if (by_code) callbacks$fun else callbacks, placement = placement
  )
  job <- new_job(functions, cluster, display)

  with_conditions(record = job$errors, {
    converted <- rlang::list2(
      model = job$model(earlier, model),
      !!!job$data(x, y, sample_weight, validation_data),
      callbacks = job$callbacks(callbacks),
      class_weight = as_mapping(class_weight),
      initial_epoch = python_epoch(initial_epoch),
      # An array stays one: the core refuses it, if it has more dimensions.
      validation_freq = if (is.null(dim(validation_freq)) && length(validation_freq) > 1L) {
        as.list(validation_freq)
      } else {
        validation_freq
      }
    )
    if (is.function(placement)) {
      part <- job$part(if (is.null(cluster)) of_layer(placement) else placement, "placement")
      converted$strategy <- core()$with_placement(strategy, part)
    }
    arguments[names(converted)] <- converted
    arguments <- c(list(job$caller(drawn)), arguments)
    result <- withr::with_preserve_seed(do.call(core(convert = TRUE)$run_fit, arguments, quote = TRUE))
    new_fit(result, model, job$errors, own_dir = !is.null(run_dir))
  })
}

# The arguments that dots have caught, which must have names. `callbacks` keep their code.
named_dots <- function(..., rule = "Further arguments must be named.", example = "epochs = 3",
                       call = rlang::caller_env()) {
  code <- rlang::enquos(...)[["callbacks"]]
  dots <- list(...)
  if (!is.null(code)) {
    written <- written_callbacks(dots$callbacks, rlang::quo_get_expr(code), rlang::quo_get_env(code))
    dots["callbacks"] <- list(written)
  }
  unnamed <- length(dots) - sum(nzchar(rlang::names2(dots)))
  if (unnamed) {
    abort(
      "argument", rule,
      received = sprintf("%d without a name", unnamed), fix = sprintf("Write %s, for example.", example),
      call = call
    )
  }
  dots
}

# Refuses what the dots of a function have caught: an argument without a name, or an unknown one.
refuse_dots <- function(name, ..., call = rlang::caller_env(), of = rlang::caller_fn()) {
  arguments <- names(formals(of))
  place <- match("...", arguments)
  dots <- named_dots(
    ...,
    rule = sprintf("The arguments of %s() after `%s` must be named.", name, arguments[[place - 1L]]),
    example = paste(arguments[[place + 1L]], "= ..."), call = call
  )
  if (length(dots)) {
    with_conditions(call = call, core()$refuse_unknown(name, names(dots)[[1L]], as.list(arguments[-place])))
  }
}

# The number of an epoch as the core counts: from 0.
python_epoch <- function(value, call = rlang::caller_env()) {
  valid <- is.numeric(value) && length(value) == 1L && is.finite(value) && value >= 1 && value == round(value)
  if (!valid) {
    abort(
      "argument", "`initial_epoch` must be a whole number of at least 1.",
      received = sub("L$", "", deparse1(value)),
      fix = "Pass initial_epoch = 1, for example.",
      call = call
    )
  }
  value - 1
}

# Validation data. A list with the names x and y has these parts, unless they are names of inputs.
python_validation <- function(value, inputs, call = rlang::caller_env()) {
  parts <- c("x", "y", "sample_weight")
  by_name <- is.list(value) && !is.object(value) && all(c("x", "y") %in% names(value))
  if (by_name && all(names(value) %in% parts) && !all(c("x", "y") %in% inputs)) {
    value <- unname(value[intersect(parts, names(value))])
  }
  python_parts(value, "validation_data", call = call)
}

# Inputs alone, or an unnamed list of inputs, targets and weights.
python_parts <- function(value, name, inputs = python_inputs, targets = python_targets,
                         call = rlang::caller_env()) {
  if (!is.list(value) || is.object(value) || !is.null(names(value))) {
    return(inputs(value, name, call))
  }
  by_place <- c(inputs, targets, python_weights)
  convert <- function(place, ...) by_place[[min(place, 3L)]](...)
  parts <- Map(convert, seq_along(value), value, part_names(name, value), list(call))
  reticulate::tuple(unname(parts))
}
