# The manifests of Kubernetes for a script. In Python: cli/kubernetes/, the command `tfdistr kubernetes`.

#' Write the manifests with which Kubernetes runs a script as workers
#'
#' `tfdistr_kubernetes()` is the command `tfdistr kubernetes write`: it writes a Job, a Service and what they
#' need into a file for `kubectl apply -f`. Inside the script, [distributed_fit()] without `cluster` trains on
#' all pods of the Job.
#'
#' @param script String: the path of a script of R (`.R`) or Python (`.py`), of at most 1,000,000 bytes.
#' @param workers The number of workers, each in a pod of its own.
#' @param output String: a new file; by default `name` with `.json`, in the working directory.
#' @param name String: the name of all objects; by default it follows from the name of the script.
#' @param image String: the image of the pods; by default what `tfdistr kubernetes containerfile` makes.
#' @param in_image Whether `script` is a path in the image.
#' @param cores_per_worker The number of processor cores of each pod.
#' @param memory String: the memory of each pod, such as `"8Gi"`.
#' @param gpus_per_worker The number of NVIDIA GPUs of each pod.
#' @param volume String: the name of a PersistentVolumeClaim. All pods mount it.
#' @param run_dir String: the folder in the volume for checkpoints, for a [distributed_fit()] without
#'   `run_dir`.
#' @param max_restarts How often the workers start again after a failure.
#' @param env Named strings: environment variables for the workers. They are in the Job, in plain text.
#' @param secret_env Strings: names of environment variables. A Secret brings the values that they have in
#'   this process.
#' @param namespace String: the namespace of the objects.
#' @param grace_period Seconds from SIGTERM to SIGKILL, in which a checkpoint is saved.
#' @inheritParams tfdistr_run
#' @return Invisibly, the path of the file.
#' @section Errors:
#'   * `tfdistr_error_argument` if an argument is not of that form, the script is not there, a variable of
#'     `secret_env` is not set, or the file exists.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' script <- tempfile(fileext = ".R")
#' writeLines("cat(tfdistr::worker_index(), \"of\", tfdistr::num_workers())", script)
#' tfdistr_kubernetes(script, workers = 4, name = "places", output = tempfile(fileext = ".json"))
#' @family functions for clusters
#' @export
tfdistr_kubernetes <- function(script, workers = 2, ..., arguments = character(), output = NULL, name = NULL,
                               image = NULL, in_image = FALSE, cores_per_worker = NULL, memory = NULL,
                               gpus_per_worker = 0, volume = NULL, run_dir = NULL, max_restarts = 0,
                               env = NULL, secret_env = character(), namespace = NULL,
                               grace_period = 120) {
  refuse_dots("tfdistr_kubernetes", ...)
  force(script)
  reload_environ()
  options <- core_options(as.list(environment()))
  path <- with_conditions(do.call(core(convert = TRUE)$write_manifests, options))
  cli::cli_verbatim(sprintf("Written: %s. Start it with: kubectl apply -f %s", path, path))
  invisible(path)
}
