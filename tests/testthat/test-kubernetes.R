# The manifests of a script. What the core does: tests/python/cli/test_kubernetes_*.py.

test_that("tfdistr_kubernetes() writes the objects of the core", {
  script <- withr::local_tempfile(lines = "cat(1)", fileext = ".R")
  withr::local_envvar(A_SECRET = "s3cret")
  output <- withr::local_tempfile(fileext = ".json")
  said <- paste(cli::cli_fmt(path <- tfdistr_kubernetes(
    script,
    workers = 3, arguments = c("--epochs", "2"), output = output, name = "digits", cores_per_worker = 2,
    memory = "8Gi", volume = "claim", run_dir = "runs", max_restarts = 1, env = c(A = "x y"),
    secret_env = "A_SECRET"
  )), collapse = "\n")
  expect_identical(said, sprintf("Written: %s. Start it with: kubectl apply -f %s", output, output))
  expect_identical(path, output)
  objects <- jsonlite::read_json(output)$items
  kinds <- c("ConfigMap", "Secret", "Service", "NetworkPolicy", "Job")
  expect_identical(vapply(objects, `[[`, "", "kind"), kinds)
  expect_identical(objects[[1]]$data$script, "cat(1)\n")
  expect_identical(rawToChar(jsonlite::base64_dec(objects[[2]]$data$A_SECRET)), "s3cret")
  job <- objects[[5]]$spec
  expect_identical(list(job$completions, job$backoffLimit), list(3L, 1L))
  container <- job$template$spec$containers[[1]]
  expect_identical(unlist(tail(container$command, 2)), c("--epochs", "2"))
  expect_identical(container$resources$limits, list(cpu = "2", memory = "8Gi"))
  variables <- setNames(lapply(container$env, `[[`, "value"), vapply(container$env, `[[`, "", "name"))
  expect_identical(variables$A, "x y")
  expect_null(variables$A_SECRET)
  expect_identical(variables$TFDISTR_KUBERNETES_RUN_DIR, "/mnt/volume/runs")
})
