# R code in a session of its own, without a Python chosen for it; what it prints.
fresh_session <- function(code, python = NA, stderr = "") {
  withr::local_envvar(RETICULATE_PYTHON = python, VIRTUAL_ENV = NA)
  withr::local_dir(withr::local_tempdir())
  command <- c("--vanilla", "-e", shQuote(code))
  system2(file.path(R.home("bin"), "Rscript"), command, stdout = TRUE, stderr = stderr)
}

test_that("a fork of a process that has loaded TensorFlow gets an error", {
  skip_on_os("windows")
  reticulate::import("tensorflow")
  forked <- function() parallel::mccollect(parallel::mcparallel(steps_per_epoch(10, 5)))[[1L]]
  failed <- suppressWarnings(forked())
  expect_s3_class(failed, "try-error")
  expect_match(failed, sprintf("Cannot use TensorFlow in a fork.*a fork of %d", Sys.getpid()))
})

test_that("tfdistr_config() says what is used, and where it comes from", {
  config <- tfdistr_config()

  expect_s3_class(config, c("tfdistr_config", "data.frame"), exact = TRUE)
  expect_identical(
    config$component,
    c("tfdistr", "R", "reticulate", "Python", "core", "tensorflow", "keras")
  )
  row <- function(component) config[config$component == component, ]
  expect_identical(row("tfdistr")$version, as.character(packageVersion("tfdistr")))
  expect_identical(row("core")$version, row("tfdistr")$version)
  expect_identical(row("Python")$from, reticulate::py_config()$python)
  expect_identical(row("tensorflow")$version, reticulate::import("importlib.metadata")$version("tensorflow"))
  expect_true(file.exists(file.path(row("keras")$from, "__init__.py")))
})

test_that("the core is the one that the package carries", {
  config <- tfdistr_config()
  expect_identical(
    normalizePath(config$from[config$component == "core"]),
    normalizePath(system.file("python", "tfdistr", package = "tfdistr"))
  )
})

test_that("core() is imported once, and converts if it is to", {
  expect_identical(core(), core())
  expect_s3_class(core()$tf_config, "python.builtin.function")
  expect_s3_class(core()$`__version__`, "python.builtin.str")
  expect_identical(core(convert = TRUE)$`__version__`, as.character(utils::packageVersion("tfdistr")))
  expect_error(core()$nothing_of_the_kind, "has no attribute 'nothing_of_the_kind'")
})

test_that("a closed pipe is an error of Python, also in a thread, and does not end the session", {
  code <- "
import threading

def write(found):
    import os
    read, written = os.pipe()
    os.close(read)
    try:
        os.write(written, b'x')
    except BrokenPipeError:
        found.append('BrokenPipeError')
    os.close(written)

found = []
write(found)
thread = threading.Thread(target=write, args=[found])
thread.start()
thread.join()
"
  core()
  expect_identical(reticulate::py_run_string(code, local = TRUE)$found, rep("BrokenPipeError", 2L))
})

test_that("a tfdistr of another version in this Python is an error that says what to do", {
  expect_error(
    check_core_version("0.0.1", wanted = "9.9.9"),
    "version of the R package, 9.9.9.*Received: 0.0.1.*Fix: restart R",
    class = "tfdistr_error_version"
  )
  expect_error(check_core_version("0.0.1", wanted = "9.9.9"), class = "tfdistr_error")
})

test_that("another tfdistr that was imported first is noticed", {
  output <- fresh_session(
    paste(
      "reticulate::py_run_string('import sys, types')",
      "reticulate::py_run_string('m = types.ModuleType(\"tfdistr\"); m.__version__ = \"0.0.1\"')",
      "reticulate::py_run_string('sys.modules[\"tfdistr\"] = m')",
      "library(tfdistr)",
      "cat(tryCatch(tfdistr_config(), tfdistr_error_version = conditionMessage))",
      sep = "; "
    ),
    python = reticulate::py_config()$python
  )
  expect_match(paste(output, collapse = " "), "Received: 0.0.1")
})

test_that("library(tfdistr) does not start Python, and asks reticulate for what pyproject.toml names", {
  output <- fresh_session(paste(
    "library(tfdistr)",
    "cat(reticulate::py_available(), '\n')",
    "writeLines(reticulate::py_require()$packages)",
    "writeLines(reticulate::py_require()$python_version)",
    sep = "; "
  ))
  expect_identical(trimws(output[[1]]), "FALSE")
  project <- RcppTOML::parseTOML(system.file("pyproject.toml", package = "tfdistr"))$project
  expect_true(all(c(unlist(project$dependencies), ">=3.11") %in% output))
  expect_identical(fresh_session("library(tfdistr)", stderr = TRUE), character())
})

test_that("the Python that make setup recorded is used where none was chosen", {
  recorded <- setup_record("Python")
  skip_if(is.na(recorded), "not installed by make setup")
  output <- fresh_session(paste(
    "library(tfdistr)",
    "cat(reticulate::py_config()$python, attr(tfdistr_config(), 'chosen_by'))",
    sep = "; "
  ))
  expect_identical(output, paste(recorded, "make setup"))
})

test_that("a Python that the user chose comes first, and is named; TensorFlow is not imported for that", {
  modules <- "names(reticulate::import('sys')$modules)"
  code <- sprintf("library(tfdistr); cat(attr(tfdistr_config(), 'chosen_by'), %s)", modules)
  said <- fresh_session(code, python = reticulate::py_config()$python)
  expect_match(said, "^RETICULATE_PYTHON ")
  expect_no_match(said, " tensorflow ", fixed = TRUE)
})

test_that("the configuration is printed line by line, with what is missing", {
  config <- structure(
    data.frame(
      component = c("R", "tensorflow"), version = c("4.2.2", NA), from = c("/usr/lib/R", NA)
    ),
    class = c("tfdistr_config", "data.frame"),
    chosen_by = "RETICULATE_PYTHON"
  )
  expect_identical(
    capture.output(invisible(print(config))),
    c(
      "R           4.2.2          /usr/lib/R",
      "tensorflow  not installed",
      "Python was chosen by RETICULATE_PYTHON."
    )
  )
})

test_that("a Python package that is not there has neither version nor folder", {
  expect_identical(python_package("no_such_module_here"), c(NA_character_, NA_character_))
})

test_that("a Python without the packages is an error that says how to install them", {
  python <- file.path(withr::local_tempdir(), "env")
  system2(reticulate::py_config()$python, c("-m", "venv", "--without-pip", python))
  output <- fresh_session(
    "library(tfdistr); cat(tryCatch(local_cluster(2), tfdistr_error_version = conditionMessage))",
    python = file.path(python, "bin", "python")
  )
  expect_match(paste(output, collapse = " "), "No module named .*Fix: Call install_tfdistr\\(\\)")
})

test_that("where Python has not the packages, the tests of the package are skipped and install nothing", {
  python <- file.path(withr::local_tempdir(), "env")
  system2(reticulate::py_config()$python, c("-m", "venv", "--without-pip", python))
  code <- sprintf("source('%s')", normalizePath(test_path("..", "testthat.R")))
  output <- fresh_session(code, python = file.path(python, "bin", "python"))
  expect_null(attr(output, "status"))
  expect_match(output, "Skipped, as no Python with tensorflow, keras and mpi4py is here", all = FALSE)
  expect_match(output, "No module named 'tensorflow'", all = FALSE)
  expect_length(Sys.glob(file.path(python, "lib", "*", "site-packages", "*")), 0L)
})

test_that("with a card of NVIDIA the libraries of CUDA are asked for, and arguments are checked", {
  project <- RcppTOML::parseTOML(package_file("pyproject.toml"))$project
  cuda <- unlist(project[["optional-dependencies"]]$gpu)
  expect_match(cuda, "and-cuda", fixed = TRUE)
  expect_true(cuda %in% python_requirements(gpu = TRUE)$packages)
  expect_false(cuda %in% python_requirements(gpu = FALSE)$packages)
  expect_true(has_nvidia_card(withr::local_tempfile(lines = "NVRM version")))
  expect_false(has_nvidia_card(tempfile()))
  refused <- function(message, ...) {
    expect_error(install_tfdistr(...), message, class = "tfdistr_error_argument")
  }
  refused("`gpu` must be TRUE, FALSE or NULL", gpu = "yes")
  refused("`envname` must be the name", envname = 3)
})

test_that("install_tfdistr() takes a version of TensorFlow", {
  wanted <- function(version, gpu = FALSE) with_tensorflow(python_requirements(gpu), version)
  expect_identical(wanted(NULL), python_requirements(FALSE))
  expect_true(all(c("tensorflow==2.18.*", "tensorflow-metadata<1.21") %in% wanted("2.18")$packages))
  expect_identical(wanted("2.18")$python_version, c(">=3.11", "<3.13"))
  expect_true("tensorflow==2.21.0" %in% wanted("2.21.0")$packages)
  expect_identical(wanted("2.21.0")$python_version, c(">=3.11", "<3.14"))
  with_cuda <- wanted("2.20", gpu = TRUE)$packages
  expect_setequal(
    grep("^tensorflow[^-]", with_cuda, value = TRUE), c("tensorflow==2.20.*", "tensorflow[and-cuda]==2.20.*")
  )
  for (version in list("2.17.1", "2.22", "newest", 2.2, c("2.18", "2.19"), NA_character_)) {
    expect_error(
      install_tfdistr(version = version), "`version` must be a version of TensorFlow, >=2.18,<2.22.",
      fixed = TRUE, class = "tfdistr_error_argument"
    )
  }
})

test_that("a version that is not supported is one error", {
  refused <- function(fake, call) {
    caught <- sprintf("cat(tryCatch(%s, tfdistr_error_version = conditionMessage))", call)
    code <- sprintf("reticulate::py_run_string(%s); library(tfdistr); %s", shQuote(fake), caught)
    paste(fresh_session(code, python = reticulate::py_config()$python), collapse = "\n")
  }
  expect_match(
    refused("import sys; sys.version_info = (3, 10, 13)", "local_cluster(2)"),
    "tfdistr works with Python 3.11 to 3.13.*Received: Python 3.10.13, in .*Fix: Use Python 3.11 to 3.13"
  )
})

test_that("requirements keep the markers of platforms, and the tables of pyproject.toml have all of them", {
  project <- RcppTOML::parseTOML(package_file("pyproject.toml"))$project
  expect_setequal(python_requirements(gpu = FALSE)$packages, unlist(project$dependencies))
  marked <- grep("^(mpi4py|mpich)", python_requirements(gpu = TRUE)$packages, value = TRUE)
  expect_length(marked, 2L)
  expect_match(marked, "; sys_platform != 'win32'", fixed = TRUE)
})

test_that("tensorflow-cpu, which keras3 requires, is held to the versions of tensorflow", {
  constraint <- readLines(package_file("uv-constraints.txt"))
  expect_true(sub("-cpu", "", constraint, fixed = TRUE) %in% python_requirements(gpu = FALSE)$packages)
  withr::local_envvar(UV_CONSTRAINT = "/a/file")
  constrain_uv("/b/file")
  constrain_uv("/b/file")
  expect_identical(Sys.getenv("UV_CONSTRAINT"), "/a/file /b/file")
  constrain_uv("/with a space")
  expect_identical(Sys.getenv("UV_CONSTRAINT"), "/a/file /b/file")
})

test_that("install_tfdistr() makes an environment in which workers train", {
  skip_slow("a session that loads TensorFlow")
  home <- withr::local_tempdir()
  withr::local_envvar(WORKON_HOME = home)
  python <- file.path(home, "r-tfdistr", "bin", "python")
  output <- fresh_session("tfdistr::install_tfdistr(gpu = FALSE)")
  expect_true(file.exists(python), info = paste(output, collapse = "\n"))
  output <- fresh_session("
    library(tfdistr)
    model <- function() {
      keras <- reticulate::import('keras')
      model <- keras$Sequential(list(keras$layers$Dense(1L)))
      model$compile('sgd', 'mse')
      model
    }
    fit <- distributed_fit(model, matrix(1:8 / 8, 4), 1:4 / 4, cluster = local_cluster(workers = 2))
    cat(reticulate::py_exe(), fit$params$communication)
  ", python = python)
  expect_match(paste(output, collapse = " "), paste(python, "mpi"), fixed = TRUE)
})

# What the core gets of a value, as Python shows it.
at_the_door <- function(value) reticulate::py_repr(reticulate::r_to_py(plain_argument(value)))

test_that("the core gets the same values as arguments", {
  expect_identical(at_the_door(1L), "1")
  expect_identical(at_the_door(c(1, NaN)), "[1.0, nan]")
  expect_identical(at_the_door(c(1, NA)), "[1.0, nan]") # a missing number is NaN among others
  expect_identical(at_the_door("NA"), "'NA'")
  expect_identical(at_the_door(c(a = "x")), "'x'")
  expect_identical(at_the_door(factor("b", levels = c("a", "b"))), "'b'")
  expect_identical(at_the_door(I("a")), "'a'")
  expect_identical(at_the_door(structure("a", class = c("fs_path", "character"))), "'a'")
  expect_identical(at_the_door(list(a = TRUE, b = list(NULL, 2L))), "{'a': True, 'b': [None, 2]}")
  expect_identical(at_the_door(character()), "[]")
  object <- reticulate::import("math", convert = FALSE)
  expect_identical(plain_argument(object), object)
  expect_identical(plain_argument(mean), mean)
})

test_that("the core gets no value that only R has", {
  expect_identical(at_the_door(NA), "NA")
  expect_identical(at_the_door(NA_integer_), "NA")
  expect_identical(at_the_door(NA_real_), "NA")
  expect_identical(at_the_door(NA_character_), "NA")
  expect_identical(at_the_door(factor(NA)), "NA")
  expect_identical(at_the_door(c(1L, NA)), "[1, NA]")
  expect_identical(at_the_door(c("a", NA)), "['a', NA]")
  expect_identical(at_the_door(list(a = NA)), "{'a': NA}")
  expect_identical(at_the_door(matrix(c(1L, NA), 1L)), "an array with missing values")
  expect_identical(at_the_door(Sys.Date()), "an object of class Date")
  expect_identical(at_the_door(as.POSIXlt(Sys.time())), "an object of class POSIXlt")
  expect_identical(at_the_door(data.frame(a = 1)), "an object of class data.frame")
  expect_identical(at_the_door(quote(a)), "an object of class name")
  expect_identical(at_the_door(structure(4.9e-324, class = "integer64")), "an object of class integer64")
  expect_identical(at_the_door(list(a = 1, a = 2)), "a list with the name 'a' more than once")
})
