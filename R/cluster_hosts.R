# Clusters on several hosts. In Python: clusters/ssh/ssh_cluster.py.

#' Describe a cluster of workers on several hosts that are reached by ssh
#'
#' This call starts nothing. Pass its result to [distributed_fit()], which starts an R process for each
#' worker, by its own ssh. The workers connect to each other, over MPI if all hosts have it. Each host must
#' let this user in without a password, and have the same R and Python at the same paths, and the same
#' versions of the packages, as this machine. Before a job starts, all hosts are asked for their versions.
#' Worker `i` (from 0) runs on `hosts[[i %/% workers_per_host + 1]]`. All hosts must see the run directory
#' under the same path; by default it is a new folder in the working directory. All workers end when the
#' process that started them ends, even if it is killed, and when its network is cut.
#'
#' @param hosts Character vector: names or addresses of the hosts, each once, by which ssh reaches them and by
#'   which they reach each other. "user@" may be before them. This machine can be one of them.
#' @param workers Number of workers on all hosts together, the same number on each.
#' @param workers_per_host Number of workers on each host, instead of `workers`; by default 1.
#' @param ssh String: the program that reaches the hosts, and its options, as in a shell, such as
#'   `"ssh -F my_config"`. By default `ssh`.
#' @param tunnels Whether the workers connect to each other through ssh, for hosts that only this machine
#'   reaches. All they send is then encrypted and goes through this machine, which is slower. The workers
#'   start cold, and listen on the loopback interface of their host only, if it has a C compiler.
#' @param cores_per_worker Number of cores of its host on which each worker runs, with as many threads. By
#'   default the workers of a host fairly share its cores.
#' @param gpus_per_worker Number of GPUs of its host for each worker, which sees only its own. 0 hides all
#'   GPUs. By default each of several workers of a host sees one, and one worker sees all.
#' @param env Named character vector: environment variables for the workers, beside the variables of this
#'   process. The variables of a login, such as HOME, are those of the host. They travel through ssh, and are
#'   in no file and no command line.
#' @param warm Whether workers are forks of a fork server; see [local_cluster()]. The first job starts a fork
#'   server on each host, by ssh.
#' @inheritParams local_cluster
#' @return A list of class `tfdistr_ssh_cluster` with these values, and `workers`, their number on all hosts.
#'   It can be saved, with the values of `env`, and used in another R session.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form, or if `workers` and
#'   `workers_per_host` contradict each other.
#' @seealso [doctor()], which looks at hosts.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' ssh_cluster(hosts = c("a", "b"), workers_per_host = 2)
#' @family clusters
#' @export
ssh_cluster <- function(hosts, ..., workers = NULL, workers_per_host = NULL, ssh = NULL, tunnels = FALSE,
                        cores_per_worker = NULL, gpus_per_worker = NULL, env = NULL, follow = FALSE,
                        warm = TRUE, tuning = TRUE, start_timeout = NULL, heartbeat_timeout = 30) {
  new_cluster("ssh_cluster", ...)
}
