# What would keep a cluster from starting. In Python: diagnosis.py.

#' Look for what would keep a cluster from starting
#'
#' Looks, from this machine, at the form of TF_CONFIG, whether the names of all tasks resolve, whether the
#' port of this task is free and those of its peers can be reached, at the clocks, the versions of all that
#' matters, the GPUs, R and reticulate. Nothing is changed, TensorFlow is not imported into this session, and
#' no check takes longer than `timeout` (the import of TensorFlow, in a process of its own, may take 2
#' minutes). Call it on each machine; workers that wait for their peers answer, too. In a shell,
#' `tfdistr doctor` does the same; its exit status tells.
#'
#' @param config The cluster: TF_CONFIG as JSON text or as an object of [tf_config()]; by default the
#'   environment variable.
#' @param hosts Character vector: instead, hosts for [mpi_cluster()], which must let this user in by ssh.
#' @param timeout Number of seconds that each check may take.
#' @return A data frame of class `tfdistr_doctor`, with one row for each thing that was looked at and the
#'   character columns `check` (what), `status` ("ok", "FAIL", or "-" where it could not be checked or does
#'   not matter), `found` and `fix` (what to do; "" if nothing). `print()` shows a table.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form. A TF_CONFIG that is not valid
#'   is a row.
#' @seealso [tfdistr_config()] for what this session uses.
#' @examplesIf reticulate::py_available(initialize = TRUE)
#' doctor(tf_config(worker = c("127.0.0.1:2222", "127.0.0.1:2223"), type = "worker", index = 0))
#' @family clusters
#' @export
doctor <- function(config = NULL, hosts = NULL, timeout = 20) {
  reload_environ()
  if (inherits(config, "tfdistr_cluster_config")) config <- as.character(config)
  hosts <- if (is.character(hosts)) as.list(unname(hosts)) else hosts
  rscript <- file.path(R.home("bin"), "Rscript")
  found <- with_conditions(
    core()$doctor(config, hosts = hosts, timeout = timeout, rscript = rscript)
  )
  frame <- as.data.frame(lapply(reticulate::py_to_r(found$columns()), unlist))
  structure(frame, class = c("tfdistr_doctor", "data.frame"), table = reticulate::py_str(found))
}

#' @export
print.tfdistr_doctor <- function(x, ...) {
  table <- attr(x, "table")
  if (is.null(table)) NextMethod() else cli::cat_line(table)
  invisible(x)
}
