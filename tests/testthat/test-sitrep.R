test_that("a bug report has versions, machine, packages, variables and checks, and no secret", {
  withr::local_envvar(TF_CONFIG = "", CUDA_VISIBLE_DEVICES = "7", SLURM_JWT_TOKEN = "secret", MY_NAME = "me")
  report <- tfdistr_sitrep()
  expect_identical(report$config, tfdistr_config())
  expect_identical(report$variables[["CUDA_VISIBLE_DEVICES"]], "7")
  expect_false(any(c("SLURM_JWT_TOKEN", "MY_NAME") %in% names(report$variables)))
  expect_gt(as.integer(report$machine[["cores"]]), 0L)
  expect_true(paste("tfdistr", utils::packageVersion("tfdistr")) %in% report$attached)
  expect_s3_class(report$checks, "tfdistr_doctor")
  shown <- capture.output(print(report))
  for (title in c("Versions", "Machine", "Attached packages", "Environment", "Checks")) {
    expect_true(title %in% shown, info = title)
  }
  expect_true(any(grepl("^CUDA_VISIBLE_DEVICES +7$", shown)))
  expect_false(any(grepl("secret", shown, fixed = TRUE)))
})
