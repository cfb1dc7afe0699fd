# Checks for problems that keep a cluster from starting. In Python: diagnosis.py.

#' Look for problems that keep a cluster from starting
#'
#' Checks, from this machine: the form of TF_CONFIG, whether the names of all tasks resolve, whether the port
#' of this task is free, whether the ports of its peers can be reached, the clocks, the versions that matter,
#' the GPUs, R and reticulate. It changes nothing, and does not import TensorFlow into this session. No check
#' takes longer than `timeout`, except the import of TensorFlow in a separate process, which may take 2
#' minutes. Call it on each machine. Workers that wait for their peers answer, too. In a shell,
#' `tfdistr doctor` does the same; its exit status is 1 if a check has failed.
#'
#' With `hosts`, it looks at these hosts, all at once by ssh, and compares them with each other and with this
#' machine: the versions of R, Python and the packages that matter, the clocks, whether each knows the names
#' of all, free ports, cores and free memory. It makes an empty file in `run_dir`, looks whether each host
#' sees it, and removes it.
#'
#' @param config The cluster: TF_CONFIG as JSON text or as an object of [tf_config()]; by default the
#'   environment variable.
#' @param hosts Character vector: instead of `config`, hosts for [ssh_cluster()], which this user
#'   reaches by ssh.
#' @param timeout Number of seconds that each check may take.
#' @param ssh String: the program that reaches the hosts, and its options; see [ssh_cluster()].
#' @param run_dir String: the folder that all hosts must see; by default the working directory.
#' @return A data frame of class `tfdistr_doctor`, with one row for each check and the character columns
#'   `check` (what), `status` ("ok", "FAIL", or "-" where it could not be checked or does not matter), `found`
#'   and `fix` (what to do; "" if nothing). `print()` shows a table.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form. An invalid TF_CONFIG is
#'   a row.
#' @seealso [tfdistr_config()] for what this session uses.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' doctor(tf_config(worker = c("127.0.0.1:2222", "127.0.0.1:2223"), type = "worker", index = 0))
#' @family clusters
#' @export
doctor <- function(config = NULL, hosts = NULL, timeout = 20, ssh = NULL, run_dir = NULL) {
  withr::local_envvar(R_LIBS = paste(.libPaths(), collapse = .Platform$path.sep)) # as workers have it
  reload_environ()
  if (inherits(config, "tfdistr_cluster_config")) config <- as.character(config)
  rscript <- file.path(R.home("bin"), "Rscript")
  found <- with_conditions(
    core()$doctor(
      config,
      hosts = as_texts(hosts), timeout = timeout, ssh = ssh, run_dir = run_dir, rscript = rscript
    )
  )
  frame <- frame_of(reticulate::py_to_r(found$columns()))
  structure(frame, class = c("tfdistr_doctor", "data.frame"), table = reticulate::py_str(found))
}

#' @export
print.tfdistr_doctor <- function(x, ...) {
  table <- attr(x, "table")
  if (is.null(table)) NextMethod() else cli::cat_line(table)
  invisible(x)
}
