# Clusters: TF_CONFIG for workers that are started by hand, and workers on this machine. In Python:
# rendezvous/config.py and clusters/local/local_cluster.py.

#' Build TF_CONFIG from addresses
#'
#' Gives the environment variable TF_CONFIG for one task of a cluster, or for every task. It is for workers
#' that you start by hand on several machines: paste the lines of [cluster_lines()] into a session on each
#' machine, then make the same call of [distributed_fit()] in every session.
#'
#' @param worker Character vector: the addresses "host:port" of the workers, in order.
#' @param ps Character vector: the addresses of the parameter servers, if there are any.
#' @param chief String: the address of the chief, if it is a separate task; by default worker 0 is the chief.
#' @param type String: the job of the task to build TF_CONFIG for, "chief", "worker", "ps" or "evaluator".
#' @param index Number: the place of that task in its job, counted from 0, as in TF_CONFIG.
#' @return With `type` and `index`, the TF_CONFIG of that task, an object of class `tfdistr_cluster_config`: a
#'   list with `cluster` (a list of addresses for each job), `task` (a list with `type` and `index`),
#'   `num_workers` (number of tasks that train), `worker_index` (the place of this task among the tasks that
#'   train, from 0; `NULL` if it does not train) and `is_chief`. Without `type` and `index`, a list of such
#'   objects, one for each task, of class `tfdistr_cluster_plan`. `as.character()` gives the JSON text.
#' @section Errors: `tfdistr_error_cluster_config` if the addresses are no valid cluster, or the task is not
#'   in it.
#' @source
#'   <https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable>
#' @seealso [cluster_lines()], [cluster_env()], [cluster_from_env()]
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' plan <- tf_config(worker = c("10.0.0.1:2222", "10.0.0.2:2222"))
#' plan
#' as.character(plan[[2]])
#' @family clusters
#' @export
tf_config <- function(worker = NULL, ps = NULL, chief = NULL, type = NULL, index = NULL) {
  built <- with_conditions(core()$tf_config(as_texts(worker), as_texts(ps), chief, type, index))
  if (is.null(type)) {
    configs <- lapply(reticulate::iterate(built$tasks), cluster_config)
    structure(configs, class = "tfdistr_cluster_plan")
  } else {
    cluster_config(built)
  }
}

#' Read the cluster that TF_CONFIG describes
#'
#' Reads and checks the environment variable TF_CONFIG. Its text may come from [tf_config()], from Python, or
#' from `jsonlite::toJSON()` with or without `auto_unbox = TRUE`.
#'
#' @return An object of class `tfdistr_cluster_config`, as from [tf_config()]; `NULL` if TF_CONFIG is not set,
#'   is empty, or has neither a cluster nor a task.
#' @section Errors: `tfdistr_error_cluster_config` if TF_CONFIG is set but not valid. The message names the
#'   field, the value and the fix.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' Sys.setenv(TF_CONFIG = jsonlite::toJSON(auto_unbox = TRUE, list(
#'   cluster = list(worker = c("10.0.0.1:2222", "10.0.0.2:2222")),
#'   task = list(type = "worker", index = 0)
#' )))
#' cluster_from_env()$num_workers
#' Sys.unsetenv("TF_CONFIG")
#' @family clusters
#' @export
cluster_from_env <- function() {
  reload_environ()
  config <- with_conditions(core()$cluster_from_env())
  if (!is_none(config)) cluster_config(config)
}

#' Describe a cluster of workers on this machine
#'
#' This call starts no worker. Pass its result to [distributed_fit()], which starts an R process for each
#' worker. The workers communicate over MPI in shared memory, or else over the loopback address. They end with
#' the process that started them. Other machines can't reach them: `SECURITY.md` says how, and what is not
#' protected.
#'
#' @param workers Number of workers, at least 1. By default 2, or, with `gpus_per_worker`, as many as there
#'   are GPUs for. Two numbers, such as `c(2, 4)`, are for jobs with `virtual_workers`: the job starts with 4
#'   workers, continues with at least 2 if some are lost, replaces them at the next checkpoint, and ends with
#'   a bitwise identical result in any case.
#' @param ... Not used.
#' @param ps Number of parameter servers beside the workers, for `strategy = "parameter_server"`. A chief is
#'   then started, too. The chief is an R process, the other tasks are Python processes.
#' @param cores_per_worker Number of cores of this machine on which each worker runs, with as many threads.
#'   By default the workers fairly share all cores that this process can use; where there are fewer cores
#'   than workers, several workers share one core.
#' @param gpus_per_worker Number of GPUs of each worker, which sees only its own, of those that this process
#'   sees (or that `env` makes visible). 0 hides all GPUs. By default each of several workers sees one GPU, in
#'   turn if there are fewer GPUs than workers, and one worker sees all.
#' @param env Named character vector: environment variables for the workers, beside the variables of this
#'   process. They have `TF_FORCE_GPU_ALLOW_GROWTH = "true"`, so that each takes the GPU memory that it needs.
#' @param follow `TRUE` to show the output of the workers while they run, each line after "`[worker 1]`". The
#'   output is in a file for each worker in any case.
#' @param warm Whether workers are forks of a fork server, an R process that has loaded Python, TensorFlow and
#'   Keras: they then start in about 2 seconds instead of 10. This call starts the fork server in the
#'   background. It serves all jobs of this session. It ends with the session, after ten idle minutes, or by
#'   [stop_warm_workers()]. Where a fork is not safe (macOS, a GPU in use), workers start cold, and their logs
#'   say why.
#' @param tuning Whether to choose settings that make TensorFlow fast on this processor: its oneDNN kernels,
#'   huge pages, and memory that stays with the process. Environment variables that are already set, such as
#'   `TF_ENABLE_ONEDNN_OPTS`, take precedence. `params$tuning` of the result describes the settings.
#' @param start_timeout Seconds until every worker must have joined the cluster; by default 300.
#' @param heartbeat_timeout Seconds without a heartbeat after which a worker counts as lost: it is stopped, or
#'   its machine or network has failed.
#' @return A list of class `tfdistr_local_cluster` with these values, `fewest`, and `gpus`, the GPUs of each
#'   worker. It can be saved, with the values of `env`, and used in another R session.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form, or if this machine has too
#'   few cores or GPUs.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' local_cluster(workers = 4, env = c(OMP_NUM_THREADS = "1"))
#' @family clusters
#' @export
local_cluster <- function(workers = NULL, ..., ps = 0, cores_per_worker = NULL, gpus_per_worker = NULL,
                          env = NULL, follow = FALSE, warm = TRUE, tuning = TRUE, start_timeout = NULL,
                          heartbeat_timeout = 30) {
  new_cluster("local_cluster", ...)
}

new_cluster <- function(name, ..., call = rlang::caller_env(), of = rlang::caller_fn()) {
  refuse_dots(name, ..., call = call, of = of)
  with_conditions(call = call, reload_environ())
  new_description(name, c(paste0("tfdistr_", name), "tfdistr_cluster"), call, of)
}

#' TF_CONFIG for a session or a process
#'
#' * `cluster_lines()`: return the lines that set TF_CONFIG in a session. Paste them into the session of the
#'   task, before any other code runs there.
#' * `cluster_env()`: return the environment variable TF_CONFIG for other processes.
#'
#' @param cluster A TF_CONFIG or a plan of [tf_config()].
#' @param language String: the language of the sessions, "r", "python" or "bash".
#' @return `cluster_lines()`: a character vector; the lines of each task begin with a comment that names the
#'   task. `cluster_env()`: the named character vector `c(TF_CONFIG = <JSON>)`; for a plan, a list of such
#'   vectors, one for each task.
#' @section Errors: `tfdistr_error_argument` if an argument is something else.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' plan <- tf_config(worker = c("10.0.0.1:2222", "10.0.0.2:2222"))
#' cat(cluster_lines(plan), sep = "\n")
#' withr::with_envvar(cluster_env(plan[[1]]), cluster_from_env()$task$index)
#' @export
cluster_lines <- function(cluster, language = "r") {
  python <- python_cluster(cluster)
  as.character(with_conditions(reticulate::py_to_r(python$lines(plain_argument(language)))))
}

#' @rdname cluster_lines
#' @export
cluster_env <- function(cluster) {
  python_cluster(cluster) # checks it
  env <- function(config) c(TF_CONFIG = as.character(config))
  if (inherits(cluster, "tfdistr_cluster_plan")) lapply(cluster, env) else env(cluster)
}

# The S3 object of a ClusterConfig. It has the JSON text, so that R can save and send it.
cluster_config <- function(config) {
  document <- reticulate::py_to_r(config$to_dict())
  structure(
    list(
      cluster = lapply(document$cluster, as.character),
      task = document$task,
      num_workers = reticulate::py_to_r(config$num_workers),
      worker_index = reticulate::py_to_r(config$worker_index),
      is_chief = reticulate::py_to_r(config$is_chief)
    ),
    json = reticulate::py_to_r(config$to_json()),
    class = "tfdistr_cluster_config"
  )
}

python_cluster <- function(cluster, call = rlang::caller_env()) {
  if (inherits(cluster, "tfdistr_cluster_config")) {
    core()$parse_tf_config(as.character(cluster))
  } else if (inherits(cluster, "tfdistr_cluster_plan")) {
    core()$ClusterPlan(reticulate::tuple(lapply(as.character(cluster), core()$parse_tf_config)))
  } else {
    abort(
      "argument", "`cluster` must be what tf_config() returns.",
      received = paste("an object of class", class(cluster)[[1L]]),
      fix = "Pass a TF_CONFIG, or the plan of all tasks.",
      call = call
    )
  }
}

# R's Sys.setenv() changes the environment of the process, of which Python has a copy.
reload_environ <- function() {
  core()$reload_environ()
}

# Python can't see whether R continues after an error: a session does, a script does not.
say_if_session <- function() {
  core()$lives_on(interactive())
}

#' @export
as.character.tfdistr_cluster_config <- function(x, ...) {
  attr(x, "json")
}

#' @export
as.character.tfdistr_cluster_plan <- function(x, ...) {
  vapply(x, as.character, "")
}

#' @export
format.tfdistr_cluster_config <- function(x, ...) {
  cluster_lines(x)
}

#' @export
format.tfdistr_cluster_plan <- function(x, ...) {
  tasks <- if (length(x) == 1L) "1 task" else paste(length(x), "tasks")
  c(sprintf("# A cluster of %s: one R session for each.", tasks), "", cluster_lines(x))
}

#' @export
print.tfdistr_cluster_config <- function(x, ...) print_lines(x)

#' @export
print.tfdistr_cluster_plan <- function(x, ...) print_lines(x)

print_lines <- function(x) {
  cli::cat_line(format(x))
  invisible(x)
}
