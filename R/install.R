# The Python environment of tfdistr, as R users know it from install_keras() and install_tensorflow().

#' Install what tfdistr needs in Python
#'
#' Makes a virtual environment, if there is none of this name, and installs the Python packages of tfdistr
#' into it: TensorFlow, Keras and MPI, in the versions that tfdistr is tested with. Later sessions with
#' `library(tfdistr)` use the environment "r-tfdistr" by themselves, unless another Python is chosen
#' ([tfdistr_config()] has the order). Without this call, reticulate makes such an environment by itself when
#' Python is first used ([reticulate::py_require()]). The call is for machines where the environment is to be
#' permanent, or is used without network.
#'
#' @param envname Name of the virtual environment, or the path of its folder.
#' @param version Version of TensorFlow, such as `"2.20"` (its newest patch) or `"2.20.0"`. By default the
#'   newest that tfdistr works with. pip chooses the version of Keras that fits.
#' @param gpu Whether TensorFlow is installed with the libraries of CUDA (about 3 GB, on Linux). By default,
#'   if the machine has an NVIDIA card.
#' @return The path of the environment's Python, invisibly.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form, if tfdistr does not work with
#'   this version of TensorFlow, or if there is no Python of a version that both work with.
#' @examples
#' \dontrun{
#' install_tfdistr()
#' install_tfdistr("older", version = "2.18")
#' }
#' @family clusters
#' @export
install_tfdistr <- function(envname = "r-tfdistr", version = NULL, gpu = NULL) {
  if (!is.null(gpu) && !rlang::is_bool(gpu)) {
    abort(
      "argument", "`gpu` must be TRUE, FALSE or NULL.",
      received = rlang::expr_deparse(gpu)[[1L]], fix = "Leave it out to install CUDA where there is a card."
    )
  }
  if (!rlang::is_string(envname) || !nzchar(envname)) {
    abort(
      "argument", "`envname` must be the name or the folder of a virtual environment.",
      received = rlang::expr_deparse(envname)[[1L]], fix = 'Leave it out, or pass envname = "my-env".'
    )
  }
  # reticulate would warn, in a folder with any pyproject.toml, that the project appears to use Poetry.
  withr::local_options(reticulate.poetry.project = "")
  wanted <- with_tensorflow(python_requirements(gpu %||% has_nvidia_card()), version)
  if (!reticulate::virtualenv_exists(envname)) {
    versions <- paste(wanted$python_version, collapse = ",")
    starter <- reticulate::virtualenv_starter(versions)
    if (is.null(starter)) {
      abort(
        "argument", sprintf("tfdistr needs Python %s.", versions),
        received = "no such Python on this machine",
        fix = 'Install one, for example by reticulate::install_python("3.12").'
      )
    }
    reticulate::virtualenv_create(envname, starter, packages = NULL)
  }
  # In a file: reticulate removes quotes from what it passes to pip, and a marker is not valid without them.
  requirements <- withr::local_tempfile(lines = wanted$packages, fileext = ".txt")
  reticulate::virtualenv_install(envname, requirements = requirements)
  if (reticulate::py_available()) {
    cli::cli_inform(c(i = "Restart R: this session uses a Python already."))
  }
  invisible(reticulate::virtualenv_python(envname))
}

# The Python packages, with their markers of platforms, and the versions of Python, that pyproject.toml names.
python_requirements <- function(gpu) {
  lines <- readLines(package_file("pyproject.toml"))
  # The tables of tools are left out: RcppTOML prints a line for a list of lists in them.
  lines <- lines[cumsum(startsWith(lines, "[tool.")) == 0L]
  project <- RcppTOML::parseTOML(paste(lines, collapse = "\n"), fromFile = FALSE)$project
  list(
    packages = c(unlist(project$dependencies), if (gpu) unlist(project[["optional-dependencies"]]$gpu)),
    python_version = strsplit(project[["requires-python"]], ",", fixed = TRUE)[[1L]]
  )
}

# The requirements with one version of TensorFlow, in place of the range that tfdistr works with.
with_tensorflow <- function(wanted, version) {
  if (is.null(version)) {
    return(wanted)
  }
  is_tensorflow <- grepl("^tensorflow(\\[|>)", wanted$packages)
  range <- regmatches(wanted$packages, regexpr("[0-9.]+,<[0-9.]+", wanted$packages))[is_tensorflow][[1L]]
  ends <- numeric_version(strsplit(range, ",<", fixed = TRUE)[[1L]])
  is_version <- rlang::is_string(version) && grepl("^[0-9]+[.][0-9]+([.][0-9]+)?$", version)
  if (!is_version || ends[[1L]] > version || ends[[2L]] <= version) {
    abort(
      "argument", sprintf("`version` must be a version of TensorFlow, >=%s.", range),
      received = rlang::expr_deparse(version)[[1L]], fix = 'Leave it out, or pass version = "2.20".',
      call = rlang::caller_env()
    )
  }
  exact <- if (grepl("[.].*[.]", version)) version else paste0(version, ".*")
  wanted$packages[is_tensorflow] <- sub(">=.*", paste0("==", exact), wanted$packages[is_tensorflow])
  if (numeric_version(version) < "2.20") { # TensorFlow 2.20 is the first for Python 3.13 and protobuf 6
    wanted$packages <- c(wanted$packages, "tensorflow-metadata<1.21") # later ones need protobuf 6, unsaid
    wanted$python_version <- sub("<3.14", "<3.13", wanted$python_version, fixed = TRUE)
  }
  wanted
}

# Whether the driver of an NVIDIA card runs; NVIDIA has libraries of CUDA for Linux only.
has_nvidia_card <- function(driver = "/proc/driver/nvidia/version") {
  file.exists(driver)
}

# Holds tensorflow-cpu, which keras3 requires instead of tensorflow, to the versions of tfdistr, whichever of
# the two packages is loaded first: uv reads the files that this variable names when it makes an environment.
constrain_uv <- function(file = package_file("uv-constraints.txt")) {
  if (grepl(" ", file, fixed = TRUE)) return() # the variable separates files by spaces
  files <- strsplit(Sys.getenv("UV_CONSTRAINT"), " ", fixed = TRUE)[[1L]]
  Sys.setenv(UV_CONSTRAINT = paste(unique(c(files, file)), collapse = " "))
}
