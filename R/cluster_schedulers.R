# Clusters of schedulers. In Python: clusters/slurm/slurm_cluster.py and clusters/ray/ray_cluster.py.

#' Describe a cluster of workers that Slurm starts
#'
#' This call starts nothing. In an allocation of `salloc` or `sbatch`, [distributed_fit()] starts the workers
#' by one `srun`. Elsewhere, on a login node for example, it submits a job by `sbatch`, shows the state of
#' the job while it waits in the queue, and waits for its end. The job is cancelled when the call ends early:
#' by Ctrl-C, by an error, or with the session. All nodes must see the run directory, this R, this Python and
#' the packages at the same paths; by default the run directory is a new folder in the working directory.
#'
#' A script that `srun` itself starts (`srun Rscript train.R`) needs no cluster: its tasks train together.
#'
#' @param nodes Number of nodes, at least 1; by default all nodes of the allocation.
#' @param workers Number of workers on all nodes together, the same number on each.
#' @param workers_per_host Number of workers on each node, instead of `workers`; by default as the allocation
#'   says, or 1.
#' @param partition String: the partition of the job. This argument and the next five are for `sbatch`, so
#'   they are not used in an allocation.
#' @param time String: the time limit of the job, as Slurm takes it: "30" are minutes, "2:30:00" hours,
#'   "1-12" a day and 12 hours. A number means minutes.
#' @param account String: the account that the job is charged to.
#' @param options Named list: other options of `sbatch`, by their long names, such as
#'   `list(mem = "8G", exclusive = TRUE)`.
#' @param setup Character vector: lines for the shell of the job before the workers start, such as
#'   `"module load cuda"`.
#' @param template String: the text of the whole script of the job, with `{options}`, `{setup}` and
#'   `{command}` where the lines `#SBATCH`, the lines of `setup` and the command of the workers belong.
#' @param cores_per_worker Number of processors of each worker (`--cpus-per-task`); by default as the
#'   allocation says, or the default of Slurm.
#' @param gpus_per_worker Number of GPUs of each worker (`--gpus-per-task`), which sees only its own. 0 hides
#'   all GPUs. By default each worker sees one of those that Slurm gives it.
#' @param env Named character vector: environment variables for the workers, beside the variables of this
#'   process.
#' @param start_timeout Seconds that the job may wait in the queue (then it is cancelled), and seconds from
#'   its start until every worker must have joined the cluster. By default the job may wait for any time, and
#'   the workers have 300 seconds.
#' @inheritParams local_cluster
#' @return A list of class `tfdistr_slurm_cluster` with these values, and `workers`, their number on all
#'   nodes. It can be saved, with the values of `env`, and used in another R session.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form, if `workers` and
#'   `workers_per_host` contradict each other, or if `nodes` is left out outside an allocation.
#' @seealso [local_cluster()], for workers on this machine.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' slurm_cluster(nodes = 2, workers_per_host = 4, partition = "gpu", time = "1:00:00")
#' @family clusters
#' @export
slurm_cluster <- function(nodes = NULL, ..., workers = NULL, workers_per_host = NULL, partition = NULL,
                          time = NULL, account = NULL, options = NULL, setup = NULL, template = NULL,
                          cores_per_worker = NULL, gpus_per_worker = NULL, env = NULL, follow = FALSE,
                          tuning = TRUE, start_timeout = NULL, heartbeat_timeout = 30) {
  new_cluster("slurm_cluster", ...)
}

#' Describe a cluster of workers in actors of Ray
#'
#' This call starts nothing. [distributed_fit()] reserves the resources of all workers by a placement
#' group, and starts an actor for each worker. The actor runs the worker, an R process of its own. Without
#' `address`, it joins the Ray that the environment variable RAY_ADDRESS names, or it starts a Ray on this
#' machine, which ends with the job. All nodes must see the run directory under the same path, and have the
#' same R, Python and packages; by default the run directory is a new folder of the working directory. All
#' workers end when the process that started them ends, even if it is killed. Ray is a Python package: `pip
#' install ray` into the Python of this session.
#'
#' @param workers Number of workers, at least 1.
#' @param resources_per_worker Named numeric vector or list: what each worker needs beside cores and GPUs,
#'   amounts by the names of Ray, such as `c(memory = 8e9)`.
#' @param address String: the address of a Ray cluster, such as "10.0.0.1:6379"; "auto" for the Ray that runs
#'   on this machine, or "local" to start one.
#' @param placement_strategy String: how Ray spreads the workers over its nodes, "SPREAD", "PACK",
#'   "STRICT_SPREAD" or "STRICT_PACK".
#' @param runtime_env Named list: the runtime environment of the workers, as Ray takes it, such as
#'   `list(pip = list("pandas"))`.
#' @param cores_per_worker Number of CPUs that Ray reserves for each worker, which runs as many threads; by
#'   default 1.
#' @param gpus_per_worker Number of GPUs that Ray gives each worker, which sees only its own, or the part of
#'   one that workers share, such as 0.5; by default none.
#' @param env Named character vector: environment variables for the workers, beside the variables of this
#'   process.
#' @param start_timeout Seconds that the workers may wait for their resources, and seconds from then until
#'   every worker must have joined the cluster. By default the workers wait for other jobs for any time, a
#'   cluster whose nodes are too small is refused at once, and the workers have 300 seconds to join.
#' @inheritParams local_cluster
#' @return A list of class `tfdistr_ray_cluster` with these values, and `workers`, their number. It can be
#'   saved, with the values of `env`, and used in another R session.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form.
#' @seealso [local_cluster()], for workers on this machine.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' ray_cluster(workers = 4, cores_per_worker = 2)
#' @family clusters
#' @export
ray_cluster <- function(workers = 2, ..., resources_per_worker = NULL, address = NULL,
                        placement_strategy = "SPREAD", runtime_env = NULL, cores_per_worker = NULL,
                        gpus_per_worker = NULL, env = NULL, follow = FALSE, tuning = TRUE,
                        start_timeout = NULL, heartbeat_timeout = 30) {
  new_cluster("ray_cluster", ...)
}
