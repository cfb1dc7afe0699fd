# Scripts as the workers of a cluster. In Python: cli/, and the commands `tfdistr run` and `tfdistr test`.

#' Run a script as the workers of a cluster
#'
#' `tfdistr_run()` is the command `tfdistr run`: it starts an R or Python script as several workers, waits
#' for all of them, and leaves none behind. Inside the script, [distributed_fit()] without `cluster`, the
#' strategies, and loops of your own train on all workers. Each line that a worker prints is shown with its
#' number before it. If a worker fails, the others are ended.
#'
#' `tfdistr_test()` is the command `tfdistr test`: it trains a small model of R on one worker of this machine,
#' then on several, and says what carried the gradients, how far the weights are apart, and whether all is
#' well.
#'
#' @param script String: the path of a script of R (`.R`) or Python (`.py`).
#' @param workers The number of workers on all hosts together. By default 2 here, or, with `gpus_per_worker`,
#'   as many as there are GPUs for; one on each of `hosts`; and in a Slurm allocation as it says.
#' @param workers_per_host The number of workers on each host, instead of `workers`.
#' @param ... Not used.
#' @param arguments Strings: the arguments of the script.
#' @param hosts Strings: hosts that ssh reaches, with R and Python at the same paths; see [ssh_cluster()]. By
#'   default this machine.
#' @param hostfile String: a file with a host on each line, such as `node-1 slots=2`.
#' @param cores_per_worker The number of cores of each worker; by default the workers share the cores of their
#'   machine.
#' @param gpus_per_worker The number of GPUs of each worker, which sees only its own; by default one for each
#'   of several workers of a machine.
#' @param communication String: what carries the gradients, as in [multi_worker_mirrored()].
#' @param env Named strings: environment variables for the workers.
#' @param start_timeout Seconds until every worker must have started.
#' @param heartbeat_timeout Seconds without a heartbeat after which a worker counts as lost.
#' @param ssh String: the program that reaches the hosts, and its options.
#' @param run_dir String: a new or empty folder for the events and logs of this run; by default a temporary
#'   one.
#' @param log_dir String: a folder for the logs of the workers; by default `logs` in `run_dir`.
#' @param max_restarts How often all workers are started again after a failure. A script whose
#'   [distributed_fit()] has `checkpoint_every` and `resume = TRUE` continues then.
#' @return `tfdistr_run()`: invisibly, a data frame with a row for each worker: `index`, `host`, `pid`,
#'   `status`, `seconds` and `log`. `tfdistr_test()`: invisibly, whether all is well.
#' @section Errors:
#'   * `tfdistr_run()`: `tfdistr_error_argument` if an argument is not of that form, or a file is not there;
#'     `tfdistr_error_cluster_start` if the workers could not be started; `tfdistr_error_worker_failed` if a
#'     worker failed; `tfdistr_error_job_stopped` if SIGTERM has ended the workers.
#'   * `tfdistr_test()`: `tfdistr_error_argument`, `tfdistr_error_cluster_start` and
#'     `tfdistr_error_worker_failed`, as `tfdistr_run()`.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' script <- tempfile(fileext = ".R")
#' writeLines("cat(tfdistr::worker_index(), \"of\", tfdistr::num_workers())", script)
#' tfdistr_run(script, workers = 2)
#' @family functions for clusters
#' @export
tfdistr_run <- function(script, workers = NULL, ..., arguments = character(), hosts = NULL, hostfile = NULL,
                        workers_per_host = NULL, cores_per_worker = NULL, gpus_per_worker = NULL,
                        communication = "auto", env = NULL, start_timeout = 300, heartbeat_timeout = 30,
                        ssh = NULL, run_dir = NULL, log_dir = NULL, max_restarts = 0) {
  refuse_dots("tfdistr_run", ...)
  force(script)
  options <- core_options(as.list(environment()), core(convert = TRUE)$environment_of_r_worker())
  options$rscript <- file.path(R.home("bin"), "Rscript")
  display <- make_display(0, of_script = TRUE)
  statuses <- with_conditions(
    core(convert = TRUE)$run_script(do.call(core()$Script, options), display$event)
  )
  invisible(frame_of(core(convert = TRUE)$worker_columns(statuses)))
}

#' @rdname tfdistr_run
#' @export
tfdistr_test <- function(workers = NULL, ..., hosts = NULL, hostfile = NULL, workers_per_host = NULL,
                         cores_per_worker = NULL, gpus_per_worker = NULL, communication = "auto", env = NULL,
                         start_timeout = 300, heartbeat_timeout = 30, ssh = NULL) {
  refuse_dots("tfdistr_test", ...)
  options <- core_options(as.list(environment()), core(convert = TRUE)$environment_of_r_worker())
  data <- load_dataset("digits", "train")
  record <- new.env()
  train <- function(given) do.call(distributed_fit, c(list(self_test_model, data), given), quote = TRUE)
  say <- function(line) cli::cli_verbatim(line)
  verdict <- with_conditions(record = record, {
    core(convert = TRUE)$self_test(do.call(core()$Workers, options), say, trainer(train, record))
  })
  cli::cli_verbatim(as.character(verdict$lines))
  invisible(verdict$ok)
}

self_test_model <- function() {
  keras <- reticulate::import("keras")
  layers <- keras$layers
  model <- keras$Sequential(list(
    layers$Rescaling(1 / 16), layers$Flatten(), layers$Dense(32L, "relu"), layers$Dense(10L, "softmax")
  ))
  model$compile(keras$optimizers$SGD(0.05), "sparse_categorical_crossentropy")
  model
}

# The arguments of a function as options of the core, which takes lists where R has vectors.
# variables: Environment variables for the workers, beside those of the user.
core_options <- function(given, variables = list()) {
  env <- as.list(given$env)
  env <- c(variables[setdiff(names(variables), names(env))], env)
  given$env <- if (length(env)) env
  given <- Filter(Negate(is.null), given)
  vectors <- intersect(c("arguments", "hosts", "secret_env"), names(given))
  given[vectors] <- lapply(given[vectors], as.list)
  given
}

# What the process of a worker runs (cli/script_worker.py of the core): the script, as Rscript does. An error
# that nobody catches is left for the launcher.
run_script <- function() {
  script <- Sys.getenv("TFDISTR_SCRIPT")
  failure <- Sys.getenv("TFDISTR_FAILURE")
  Sys.unsetenv(c("TFDISTR_SCRIPT", "TFDISTR_FAILURE"))
  withCallingHandlers(
    source(script, local = globalenv(), print.eval = TRUE),
    error = function(error) {
      leave_failure(error, format_calls(own_calls(as.list(sys.calls()))), failure)
    }
  )
}

leave_failure <- function(error, calls, path) {
  said <- list(
    error_type = class(error)[[1L]], message = conditionMessage(error),
    traceback = calls, peer = inherits(error, "tfdistr_error_worker_failed")
  )
  writeLines(jsonlite::toJSON(said, auto_unbox = TRUE), path, useBytes = TRUE)
}
