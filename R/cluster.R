# Clusters: TF_CONFIG for workers that are started by hand, and workers on this machine. In Python:
# cluster/config.py, launch/local.py, launch/mpi_cluster.py, launch/ssh_cluster.py, launch/slurm_cluster.py;
# for Ray, launch/ray_cluster.py.

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
  addresses <- function(values) if (is.character(values)) as.list(unname(values)) else values
  built <- with_conditions(
    core()$tf_config(addresses(worker), addresses(ps), chief, type, index)
  )
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
#' worker, by `mpiexec` where the workers communicate by MPI. By MPI, the workers listen on no port.
#' Otherwise they listen on free ports and communicate over the loopback address. They end with the process
#' that started them. Other machines can't reach them: `SECURITY.md` says how, and what is not protected.
#'
#' @param workers Number of workers, at least 1; or "gpus" for one worker for each GPU that this process sees
#'   (or that `env` makes visible). Each such worker sees only its GPU. Two numbers, such as `c(2, 4)`, are
#'   for jobs with `virtual_workers`: the job begins with 4 workers, goes on with at least 2 if some are lost,
#'   takes others in their place at the next checkpoint, and ends with the same bits in any case.
#' @param ps Number of parameter servers beside the workers, for `strategy = "parameter_server"`. A chief is
#'   then started, too. The chief is an R process, the other tasks are Python processes.
#' @param cores_per_worker Number of cores of this machine on which each worker runs, with as many threads.
#'   By default the workers fairly share all cores that this process can use; where there are fewer cores
#'   than workers, several workers share one core.
#' @param env Named character vector: environment variables for the workers, beside the variables of this
#'   process.
#' @param follow `TRUE` to show the output of the workers while they run, each line after "`[worker 1]`". The
#'   output is in a file for each worker in any case.
#' @param start_timeout Seconds until every worker must have joined the cluster.
#' @param warm Whether workers are forks of a fork server, an R process that has loaded Python, TensorFlow and
#'   Keras: they then start in some 2 seconds instead of 10. This call starts the fork server in the
#'   background. It serves all jobs of this session. It ends with the session, after ten idle minutes, or by
#'   [stop_warm_workers()]. Where a fork is not safe (macOS, a GPU in use), workers start cold, and their logs
#'   say why.
#' @return A list of class `tfdistr_local_cluster` with these seven values, `fewest`, and `gpus`, the GPU of
#'   each worker.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' local_cluster(workers = 4, env = c(OMP_NUM_THREADS = "1"))
#' @family clusters
#' @export
local_cluster <- function(workers = 2, ps = 0, cores_per_worker = NULL, env = NULL, follow = FALSE,
                          start_timeout = 300, warm = TRUE) {
  made <- with_conditions({
    made <- python_local_cluster(workers, ps, cores_per_worker, env, follow, start_timeout, warm)
    reload_environ()
    made$warm_up(worker_command(), worker_env())
    made
  })
  structure(
    list(
      workers = reticulate::py_to_r(made$workers),
      fewest = reticulate::py_to_r(made$fewest),
      ps = reticulate::py_to_r(made$ps),
      gpus = unlist(reticulate::py_to_r(made$gpus)),
      cores_per_worker = reticulate::py_to_r(made$cores_per_worker),
      env = unlist(reticulate::py_to_r(made$env)),
      follow = follow,
      start_timeout = start_timeout,
      warm = warm
    ),
    class = "tfdistr_local_cluster"
  )
}

#' Describe an MPI cluster of workers on several hosts
#'
#' This call starts nothing. Pass its result to [distributed_fit()], which runs one `mpiexec`. `mpiexec`
#' reaches the hosts by ssh: each host must let this user in without a password, and have the same R, Python,
#' packages and MPI at the same paths as this machine. Worker `i` (from 0) runs on
#' `hosts[[i %/% workers_per_host + 1]]`. All hosts must see the run directory under the same path; by default
#' it is a new folder in the working directory. On Linux, all workers end with the process that started them,
#' also if that process is killed.
#'
#' @param hosts Character vector: names or addresses of the hosts, each once, as ssh takes them. This machine
#'   can be one of them.
#' @param workers_per_host Number of workers on each host, at least 1.
#' @param cores_per_worker Number of cores of its host on which each worker runs, with as many threads. By
#'   default the workers of a host fairly share its cores.
#' @param env Named character vector: environment variables for the workers, beside the variables that
#'   `mpiexec` passes on (MPICH passes on all variables of this process).
#' @param follow `TRUE` to show the output of the workers while they run, each line after "`[worker 1]`".
#' @param start_timeout Seconds until every worker must have joined the cluster.
#' @param ssh String: the program that reaches the hosts, and its options, as in a shell, such as
#'   `"ssh -F my_config"`. By default `ssh`.
#' @param warm Whether workers are forks of a fork server; see [local_cluster()]. The first job starts a fork
#'   server on each host, by ssh.
#' @return A list of class `tfdistr_mpi_cluster` with these values, and `workers`, their number on all hosts.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form.
#' @seealso [local_cluster()], for workers on this machine; they also communicate by MPI, where they can.
#'   [ssh_cluster()], for hosts without MPI.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' mpi_cluster(hosts = c("a", "b"), workers_per_host = 2)
#' @family clusters
#' @export
mpi_cluster <- function(hosts, workers_per_host = 1, cores_per_worker = NULL, env = NULL, follow = FALSE,
                        start_timeout = 300, ssh = NULL, warm = TRUE) {
  made <- with_conditions(
    python_mpi_cluster(hosts, workers_per_host, cores_per_worker, env, follow, start_timeout, ssh, warm)
  )
  cluster_on_hosts("tfdistr_mpi_cluster", made, hosts, follow, start_timeout, ssh, warm)
}

#' Describe a cluster of workers on several hosts that are reached by ssh
#'
#' This call starts nothing. Pass its result to [distributed_fit()], which starts an R process for each
#' worker, by its own ssh. The hosts need no MPI: the workers connect to each other by TensorFlow's ring. Each
#' host must let this user in without a password, and have the same R and Python at the same paths, and the
#' same versions of the packages, as this machine. Before a job starts, all hosts are asked for their
#' versions. Worker `i` (from 0) runs on `hosts[[i %/% workers_per_host + 1]]`. All hosts must see the run
#' directory under the same path; by default it is a new folder in the working directory. All workers end when
#' the process that started them ends, even if it is killed, and when its network is cut.
#'
#' @param hosts Character vector: names or addresses of the hosts, each once, by which ssh reaches them and by
#'   which they reach each other. "user@" may be before them. This machine can be one of them.
#' @param workers_per_host Number of workers on each host, at least 1.
#' @param cores_per_worker Number of cores of its host on which each worker runs, with as many threads. By
#'   default the workers of a host fairly share its cores.
#' @param env Named character vector: environment variables for the workers, beside the variables of this
#'   process. The variables of a login, such as HOME, are those of the host. They travel through ssh, and are
#'   in no file and no command line.
#' @param follow `TRUE` to show the output of the workers while they run, each line after "`[worker 1]`".
#' @param start_timeout Seconds until every worker must have joined the cluster.
#' @param ssh String: the program that reaches the hosts, and its options, as in a shell, such as
#'   `"ssh -F my_config"`. By default `ssh`.
#' @param warm Whether workers are forks of a fork server; see [local_cluster()]. The first job starts a fork
#'   server on each host, by ssh.
#' @param tunnels Whether the workers connect to each other through ssh, for hosts that only this machine
#'   reaches. All they send is then encrypted and goes through this machine, which is slower. The workers
#'   start cold, and listen on the loopback interface of their host only, if it has a C compiler.
#' @return A list of class `tfdistr_ssh_cluster` with these values, and `workers`, their number on all hosts.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form.
#' @seealso [mpi_cluster()], for hosts with MPI; [doctor()], which looks at hosts.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' ssh_cluster(hosts = c("a", "b"), workers_per_host = 2)
#' @family clusters
#' @export
ssh_cluster <- function(hosts, workers_per_host = 1, cores_per_worker = NULL, env = NULL, follow = FALSE,
                        start_timeout = 300, ssh = NULL, warm = TRUE, tunnels = FALSE) {
  made <- with_conditions(python_ssh_cluster(
    hosts, workers_per_host, cores_per_worker, env, follow, start_timeout, ssh, warm,
    tunnels = tunnels
  ))
  cluster_on_hosts(
    "tfdistr_ssh_cluster", made, hosts, follow, start_timeout, ssh, warm,
    tunnels = tunnels
  )
}

# The S3 object of a cluster on several hosts.
cluster_on_hosts <- function(class, made, hosts, follow, start_timeout, ssh, warm, ...) {
  structure(
    list(
      hosts = hosts,
      workers_per_host = reticulate::py_to_r(made$workers_per_host),
      workers = reticulate::py_to_r(made$workers),
      cores_per_worker = reticulate::py_to_r(made$cores_per_worker),
      env = unlist(reticulate::py_to_r(made$env)),
      follow = follow,
      start_timeout = start_timeout,
      ssh = ssh,
      warm = warm,
      ...
    ),
    class = class
  )
}

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
#' @param tasks_per_node Number of workers on each node; by default as the allocation says, or 1.
#' @param cores_per_worker Number of processors of each worker (`--cpus-per-task`); by default as the
#'   allocation says, or the default of Slurm.
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
#' @param env Named character vector: environment variables for the workers, beside the variables of this
#'   process.
#' @param follow `TRUE` to show the output of the workers while they run, each line after "`[worker 1]`".
#' @param start_timeout Seconds that the job may wait in the queue (then it is cancelled), and seconds from
#'   its start until every worker must have joined the cluster. By default the job may wait for any time, and
#'   the workers have 300 seconds.
#' @return A list of class `tfdistr_slurm_cluster` with these values, and `workers`, their number on all
#'   nodes.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form, or if `nodes` is left out
#'   outside an allocation.
#' @seealso [local_cluster()], for workers on this machine.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' slurm_cluster(nodes = 2, tasks_per_node = 4, partition = "gpu", time = "1:00:00")
#' @family clusters
#' @export
slurm_cluster <- function(nodes = NULL, tasks_per_node = NULL, cores_per_worker = NULL, partition = NULL,
                          time = NULL, account = NULL, options = NULL, setup = NULL, template = NULL,
                          env = NULL, follow = FALSE, start_timeout = NULL) {
  given <- list(
    nodes = nodes, tasks_per_node = tasks_per_node, cores_per_worker = cores_per_worker,
    partition = partition, time = time, account = account, options = options, setup = setup,
    template = template, env = env, follow = follow, start_timeout = start_timeout
  )
  made <- with_conditions(python_slurm_cluster(given))
  structure(c(given, list(workers = reticulate::py_to_r(made$workers))), class = "tfdistr_slurm_cluster")
}

python_slurm_cluster <- function(given) {
  reload_environ()
  as_mapping <- function(values) if (is.null(values) || is.null(names(values))) values else as.list(values)
  core()$slurm_cluster(
    given$nodes, given$tasks_per_node,
    cores_per_worker = given$cores_per_worker, partition = given$partition, time = given$time,
    account = given$account, options = as_mapping(given$options),
    setup = if (is.character(given$setup)) as.list(unname(given$setup)) else given$setup,
    template = given$template, env = if (length(given$env)) as.list(given$env), follow = given$follow,
    start_timeout = given$start_timeout
  )
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
#' @param num_workers Number of workers, at least 1.
#' @param resources_per_worker Named numeric vector or list: what each worker needs, amounts by the names of
#'   Ray, such as `c(CPU = 4, GPU = 1)`. By default one CPU. A worker runs as many threads as it has CPUs.
#' @param address String: the address of a Ray cluster, such as "10.0.0.1:6379"; "auto" for the Ray that runs
#'   on this machine, or "local" to start one.
#' @param placement_strategy String: how Ray spreads the workers over its nodes, "SPREAD", "PACK",
#'   "STRICT_SPREAD" or "STRICT_PACK".
#' @param runtime_env Named list: the runtime environment of the workers, as Ray takes it, such as
#'   `list(pip = list("pandas"))`.
#' @param env Named character vector: environment variables for the workers, beside the variables of this
#'   process.
#' @param follow `TRUE` to show the output of the workers while they run, each line after "`[worker 1]`".
#' @param start_timeout Seconds that the workers may wait for their resources, and seconds from then until
#'   every worker must have joined the cluster. By default the workers wait for other jobs for any time, a
#'   cluster whose nodes are too small is refused at once, and the workers have 300 seconds to join.
#' @return A list of class `tfdistr_ray_cluster` with these values, and `workers`, their number.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form.
#' @seealso [local_cluster()], for workers on this machine.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' ray_cluster(num_workers = 4, resources_per_worker = c(CPU = 2))
#' @family clusters
#' @export
ray_cluster <- function(num_workers = 2, resources_per_worker = NULL, address = NULL,
                        placement_strategy = "SPREAD", runtime_env = NULL, env = NULL, follow = FALSE,
                        start_timeout = NULL) {
  given <- list(
    num_workers = num_workers, resources_per_worker = resources_per_worker, address = address,
    placement_strategy = placement_strategy, runtime_env = runtime_env, env = env, follow = follow,
    start_timeout = start_timeout
  )
  made <- with_conditions(python_ray_cluster(given))
  structure(c(given, list(workers = reticulate::py_to_r(made$workers))), class = "tfdistr_ray_cluster")
}

python_ray_cluster <- function(given) {
  reload_environ()
  as_mapping <- function(values) if (is.null(values) || is.null(names(values))) values else as.list(values)
  core()$ray_cluster(
    given$num_workers, as_mapping(given$resources_per_worker),
    address = given$address, placement_strategy = given$placement_strategy,
    runtime_env = as_mapping(given$runtime_env), env = if (length(given$env)) as.list(given$env),
    follow = given$follow, start_timeout = given$start_timeout
  )
}

python_mpi_cluster <- function(...) python_on_hosts(core()$mpi_cluster, ...)

python_ssh_cluster <- function(...) python_on_hosts(core()$ssh_cluster, ...)

python_on_hosts <- function(make, hosts, workers_per_host, cores_per_worker, env, follow, start_timeout, ssh,
                            warm, ...) {
  make(
    if (is.character(hosts)) as.list(unname(hosts)) else hosts, workers_per_host,
    cores_per_worker = cores_per_worker,
    env = if (length(env)) as.list(env), follow = follow, start_timeout = start_timeout, ssh = ssh,
    warm = warm, ...
  )
}

python_local_cluster <- function(workers, ps, cores_per_worker, env, follow, start_timeout, warm) {
  core()$describe_local_cluster(
    workers,
    ps = ps, cores_per_worker = cores_per_worker, env = if (length(env)) as.list(env), follow = follow,
    start_timeout = start_timeout, warm = warm
  )
}

#' TF_CONFIG for a session or a process
#'
#' * `cluster_lines()`: give the lines that set TF_CONFIG in a session. Paste them into the session of the
#'   task, before any other code runs there.
#' * `cluster_env()`: give the environment variable TF_CONFIG for other processes.
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

# Python can't see whether R goes on after an error: a session does, a script does not.
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
format.tfdistr_local_cluster <- function(x, ...) {
  c(
    sprintf(
      "%s %s on this machine", paste(c(x$fewest, x$workers), collapse = " to "),
      if (x$workers == 1L) "worker" else "workers"
    ),
    if (x$ps) sprintf("  and %d parameter %s", x$ps, if (x$ps == 1L) "server" else "servers"),
    if (length(x$env)) sprintf("  with %s", names(x$env))
  )
}

#' @export
format.tfdistr_mpi_cluster <- function(x, ...) format_on_hosts(x, "MPI")

#' @export
format.tfdistr_ssh_cluster <- function(x, ...) format_on_hosts(x, "ssh")

format_on_hosts <- function(x, by) {
  c(
    sprintf(
      "%d %s by %s: %d on each of %s", x$workers, if (x$workers == 1L) "worker" else "workers", by,
      x$workers_per_host, paste(x$hosts, collapse = ", ")
    ),
    if (length(x$env)) sprintf("  with %s", names(x$env))
  )
}

#' @export
format.tfdistr_slurm_cluster <- function(x, ...) {
  c(
    sprintf(
      "%d %s by Slurm%s", x$workers, if (x$workers == 1L) "worker" else "workers",
      if (is.null(x$nodes)) "" else sprintf(", on %d %s", x$nodes, if (x$nodes == 1) "node" else "nodes")
    ),
    if (length(x$env)) sprintf("  with %s", names(x$env))
  )
}

#' @export
format.tfdistr_ray_cluster <- function(x, ...) {
  needs <- if (length(x$resources_per_worker)) unlist(x$resources_per_worker) else c(CPU = 1)
  c(
    sprintf(
      "%d %s by Ray%s, each with %s", x$workers, if (x$workers == 1L) "worker" else "workers",
      if (is.null(x$address)) "" else paste(" at", x$address), paste(needs, names(needs), collapse = ", ")
    ),
    if (length(x$env)) sprintf("  with %s", names(x$env))
  )
}

#' @export
print.tfdistr_cluster_config <- function(x, ...) print_lines(x)

#' @export
print.tfdistr_cluster_plan <- function(x, ...) print_lines(x)

#' @export
print.tfdistr_local_cluster <- function(x, ...) print_lines(x)

#' @export
print.tfdistr_mpi_cluster <- function(x, ...) print_lines(x)

#' @export
print.tfdistr_ray_cluster <- function(x, ...) print_lines(x)

#' @export
print.tfdistr_slurm_cluster <- function(x, ...) print_lines(x)

#' @export
print.tfdistr_ssh_cluster <- function(x, ...) print_lines(x)

print_lines <- function(x) {
  cli::cat_line(format(x))
  invisible(x)
}
