addresses <- c("10.0.0.1:2222", "10.0.0.2:2222")

test_that("tf_config() gives the TF_CONFIG of every task, or of one", {
  plan <- tf_config(worker = addresses, ps = "10.0.0.3:2222", chief = "10.0.0.4:2222")
  expect_s3_class(plan, "tfdistr_cluster_plan")
  expect_length(plan, 4L)
  tasks <- lapply(plan, `[[`, "task")
  expect_identical(vapply(tasks, `[[`, "", "type"), c("chief", "worker", "worker", "ps"))
  expect_identical(vapply(tasks, `[[`, 1L, "index"), c(0L, 0L, 1L, 0L))

  config <- tf_config(worker = addresses, type = "worker", index = 1)
  expect_s3_class(config, "tfdistr_cluster_config")
  expect_identical(config$cluster, list(worker = addresses))
  expect_identical(config$task, list(type = "worker", index = 1L))
  expect_identical(config$num_workers, 2L)
  expect_identical(config$worker_index, 1L)
  expect_false(config$is_chief)
  expect_identical(as.character(tf_config(addresses)), c(
    '{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}',
    '{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 1}}'
  ))
  expect_identical(tf_config(c(a = "a:1"), type = "evaluator", index = 0)$worker_index, NULL)
  expect_identical(tf_config(list("a:1", "b:2")), tf_config(c("a:1", "b:2")))
  expect_identical(tf_config("a:1")[[1L]]$cluster, list(worker = "a:1"))
})

test_that("plans and configurations print the lines to paste, and evaluating these sets TF_CONFIG", {
  plan <- tf_config(worker = addresses)
  expect_snapshot(plan)
  expect_snapshot(plan[[2L]])
  expect_snapshot(cat(cluster_lines(plan[[1L]], "bash"), sep = "\n"))
  withr::local_envvar(TF_CONFIG = NA)
  eval(parse(text = cluster_lines(plan[[2L]])))
  expect_identical(cluster_from_env(), plan[[2L]])
  withr::local_envvar(cluster_env(plan[[1L]]))
  expect_identical(cluster_from_env(), plan[[1L]])
  expect_identical(cluster_env(plan)[[2L]], c(TF_CONFIG = as.character(plan[[2L]])))
})

test_that("cluster_lines() and cluster_env() take what tf_config() returns", {
  refused <- function(code, message) expect_error(code, message, class = "tfdistr_error_argument")
  refused(cluster_lines(tf_config("a:1"), "perl"), "`language` must be")
  refused(cluster_lines("a:1"), "`cluster` must be what tf_config\\(\\) returns.*class character")
  refused(cluster_env(3), "`cluster` must be what tf_config")
})

test_that("local_cluster() describes workers on this machine, and checks its arguments", {
  cluster <- local_cluster(3, env = c(A = "1", B = "two"), follow = TRUE, start_timeout = 60)
  expect_s3_class(cluster, c("tfdistr_local_cluster", "tfdistr_cluster"))
  expect_identical(cluster$env, list(A = "1", B = "two"))
  expect_named(local_cluster()$env, character())
  defaults <- list(workers = 2L, follow = FALSE, start_timeout = 300, heartbeat_timeout = 30, warm = TRUE)
  expect_identical(unclass(local_cluster())[names(defaults)], defaults)
  expect_identical(unname(unclass(cluster)[c("workers", "follow", "start_timeout")]), list(3L, TRUE, 60))
  expect_snapshot(cluster)
  expect_snapshot(local_cluster(1))
  expect_identical(local_cluster(3, gpus_per_worker = 0)$gpus, c("-1", "-1", "-1"))
  expect_identical(local_cluster(1, cores_per_worker = 1)$cores_per_worker, 1L)
})

test_that("slurm_cluster() describes workers that Slurm starts, and checks its arguments", {
  withr::local_envvar(SLURM_JOB_ID = NA)
  options <- list(mem = "8G", exclusive = TRUE)
  cluster <- slurm_cluster(2, workers_per_host = 3, time = 30, options = options, setup = c("a", "b"))
  expect_s3_class(cluster, "tfdistr_slurm_cluster")
  expect_identical(cluster$workers, 6L)
  expect_identical(format(cluster), "6 workers by Slurm, on 2 nodes")
  expect_output(print(slurm_cluster(1, env = c(A = "1"))), "1 worker by Slurm, on 1 node\n  with A")
  expect_identical(cluster$options, options)
  expect_identical(cluster$time, "30")
  expect_identical(unlist(cluster$setup), c("a", "b"))
  refused <- function(code, message) expect_error(code, message, class = "tfdistr_error_argument")
  refused(slurm_cluster(), "Outside an allocation of Slurm, `nodes` must say")
  withr::local_envvar(PATH = "/nowhere")
  expect_error(
    distributed_fit(small_model, matrix(1, 2), 1:2, cluster = slurm_cluster(2)),
    "slurm_cluster\\(\\) needs the Slurm programs",
    class = "tfdistr_error_cluster_start"
  )
})

test_that("ray_cluster() describes workers in actors of Ray, and checks its arguments", {
  cluster <- ray_cluster(
    3,
    resources_per_worker = c(memory = 1e9), cores_per_worker = 2, gpus_per_worker = 0.5,
    address = "10.0.0.1:6379", runtime_env = list(pip = list("a"))
  )
  expect_s3_class(cluster, "tfdistr_ray_cluster")
  expect_identical(cluster$workers, 3L)
  each <- "2 CPU, 0.5 GPU, 1000000000 memory"
  expect_identical(format(cluster), paste("3 workers by Ray at 10.0.0.1:6379, each with", each))
  expect_output(print(ray_cluster(1, env = c(A = "1"))), "1 worker by Ray, each with 1 CPU\n  with A")
  expect_identical(cluster$resources_per_worker, list(memory = 1000000000L))
  expect_identical(cluster$runtime_env, list(pip = "a"))
  refused <- function(code, message) expect_error(code, message, class = "tfdistr_error_argument")
  refused(ray_cluster(resources_per_worker = c(CPU = 2)), "Pass cores_per_worker = 2, and leave CPU out")
})

test_that("ssh_cluster() describes workers on several hosts, and checks its arguments", {
  cluster <- ssh_cluster(
    c("me@a", "10.0.0.2"),
    workers_per_host = 2, env = c(A = "1"), ssh = "ssh -F config", warm = FALSE
  )
  expect_s3_class(cluster, "tfdistr_ssh_cluster")
  expect_identical(unlist(cluster$hosts), c("me@a", "10.0.0.2"))
  expect_identical(c(cluster$workers_per_host, cluster$workers), c(2L, 4L))
  expect_identical(ssh_cluster(factor(c("a", "b")))$hosts, ssh_cluster(c("a", "b"))$hosts)
  expect_identical(cluster$env, list(A = "1"))
  expect_snapshot(cluster)
  refused <- function(code, message) expect_error(code, message, class = "tfdistr_error_argument")
  refused(
    ssh_cluster("a", workers = 3, workers_per_host = 2),
    "`workers` must be `workers_per_host` times the number of hosts.*Pass workers = 2"
  )
})

test_that("workers find this package and this Python", {
  expect_identical(core(convert = TRUE)$environment_of_r_worker("/scratch"), list(
    RETICULATE_PYTHON = reticulate::py_config()$python,
    R_LIBS = paste(.libPaths(), collapse = .Platform$path.sep),
    TMPDIR = "/scratch"
  ))
  command <- unlist(module_of_core("r.functions")$r_worker_command())
  expect_identical(command[[1L]], file.path(R.home("bin"), "Rscript"))
})
