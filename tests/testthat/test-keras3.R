# Models that are written with keras3, in separate R sessions: the session of the tests does not attach it.

# nolint start: object_usage_linter. The functions of testthat and of helper-jobs.R.
# The result of scripts/keras3.R for some cases.
with_keras3 <- function(cases, first = "keras3") {
  file <- withr::local_tempfile()
  env <- c(R_LIBS = libraries(), IMAGES = folder_of_images())
  script <- start_script("keras3.R", c(file, first, cases), env)
  script$process$wait(300000)
  if (!file.exists(file)) stop(script$output())
  expect_identical(list.files(script$temporary, "^tfdistr"), character()) # no folders of its jobs
  readRDS(file)
}

# 60 images of two classes, in two folders.
folder_of_images <- function(frame = parent.frame(2L)) {
  folder <- withr::local_tempdir(.local_envir = frame)
  digits <- some_digits()
  for (number in 1:60) {
    class <- file.path(folder, digits$y[[number]] %% 2L)
    dir.create(class, showWarnings = FALSE)
    png::writePNG(digits$x[number, , , 1L], file.path(class, sprintf("%02d.png", number)))
  }
  folder
}

expect_equal_on_two_workers <- function(result) {
  for (case in names(result)) {
    expect_lt(max(result[[case]]$apart), 1e-6, label = case)
    expect_true(result[[case]]$learns || result[[case]]$epochs == 1L, info = case)
  }
}
# nolint end

test_that("pipes of keras3 train on two workers as on one", {
  result <- with_keras3("sequential")
  expect_equal_on_two_workers(result)
  expect_identical(sort(result$sequential$metrics), c("accuracy", "loss", "val_accuracy", "val_loss"))
})

test_that("models, classes, functions and data do, where keras3 was attached after tfdistr", {
  skip_slow("R sessions load keras3 and TensorFlow")
  cases <- c(
    "functional_with_callbacks", "layer_class_of_pipeline", "model_and_callback_classes", "r_loss_and_metric",
    "schedule_of_dataset", "images", "given"
  )
  result <- with_keras3(cases, first = "tfdistr")
  expect_named(result, cases)
  expect_equal_on_two_workers(result)
  expect_true("error" %in% result$r_loss_and_metric$metrics)
  expect_identical(result$model_and_callback_classes$epochs, 1L)
})

test_that("a class without call(), with steps that take x alone and nested logs, does", {
  skip_slow("R sessions load keras3 and TensorFlow")
  result <- with_keras3("own_steps")
  expect_equal_on_two_workers(result)
  expect_setequal(result$own_steps$metrics, c("loss", "mae", "val_loss", "val_mae"))
})

# keras3#1016: a script with pipes, started on each machine with its TF_CONFIG, as the original job was.
test_that("keras3#1016: R sessions with TF_CONFIG train a model of pipes as one session does", {
  skip_slow("R sessions load keras3 and TensorFlow")
  withr::local_envvar(R_LIBS = libraries())
  two <- two_tasks("joined-keras3.R", cluster_env(tf_config(worker = free_addresses())))
  output <- withr::local_tempfile()
  alone <- start_script("joined-keras3.R", output)
  alone$process$wait(120000)
  expect_identical(alone$process$get_exit_status(), 0L, info = alone$output())
  one <- readRDS(output)
  for (worker in two) {
    expect_equal(worker$history, one$history, tolerance = 1e-6)
    expect_equal(worker$weights, one$weights, tolerance = 1e-6)
  }
})

# Without a card of NVIDIA keras3 requires tensorflow-cpu in place of tensorflow, of any version.
test_that("whichever of keras3 and tfdistr is loaded first, reticulate gets the TensorFlow of tfdistr", {
  skip_slow("R sessions load keras3 and TensorFlow")
  skip_if(has_nvidia_card(), "a card of NVIDIA")
  uv <- normalizePath(Filter(file.exists, c("../../.tools/uv/bin/uv", Sys.which("uv"))))
  skip_if_not(length(uv) > 0L, "uv is not here")
  for (order in list(c("keras3", "tfdistr"), c("tfdistr", "keras3"))) {
    wanted <- withr::local_tempfile()
    older <- withr::local_tempfile(lines = "tensorflow-cpu<2.18", fileext = ".txt")
    code <- sprintf(
      "suppressMessages({library(%s); library(%s)}); saveRDS(list(reticulate::py_require()$packages,
       Sys.getenv(c('UV_OVERRIDE', 'UV_CONSTRAINT'))), '%s')", order[[1L]], order[[2L]], wanted
    )
    arguments <- c("--vanilla", "-e", shQuote(code))
    env <- c(paste0("R_LIBS=", libraries()), "RETICULATE_PYTHON=", "UV_CONSTRAINT=")
    system2(file.path(R.home("bin"), "Rscript"), arguments, env = env, stderr = FALSE)
    asked <- readRDS(wanted)
    packages <- withr::local_tempfile(lines = asked[[1L]], fileext = ".txt")
    resolve <- function(...) {
      withr::local_envvar(UV_OVERRIDE = asked[[2L]][[1L]], UV_CONSTRAINT = paste(asked[[2L]][[2L]], ...))
      processx::run(
        uv[[1L]], c("pip", "compile", "--no-header", "--python-version", "3.12", packages),
        error_on_status = FALSE
      )
    }
    expect_match(resolve()$stdout, "(^|\n)tensorflow-cpu==2[.]21[.]")
    expect_match(resolve(older)$stderr, "tensorflow-cpu") # the version of tfdistr is required
  }
})
