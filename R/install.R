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
#' @param gpu Whether TensorFlow is installed with the libraries of CUDA (about 3 GB, on Linux). By default,
#'   if the machine has an NVIDIA card.
#' @return The path of the environment's Python, invisibly.
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form, or if there is no Python of a
#'   version that tfdistr works with.
#' @examples
#' \dontrun{
#' install_tfdistr()
#' }
#' @family clusters
#' @export
install_tfdistr <- function(envname = "r-tfdistr", gpu = NULL) {
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
  wanted <- python_requirements(gpu %||% has_nvidia_card())
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
  reticulate::virtualenv_install(envname, wanted$packages)
  if (reticulate::py_available()) {
    cli::cli_inform(c(i = "Restart R: this session uses a Python already."))
  }
  invisible(reticulate::virtualenv_python(envname))
}

# The Python packages, and the versions of Python, that pyproject.toml names.
python_requirements <- function(gpu) {
  lines <- readLines(package_file("pyproject.toml"))
  # The tables of tools are left out: RcppTOML prints a line for a list of lists in them.
  lines <- lines[cumsum(startsWith(lines, "[tool.")) == 0L]
  project <- RcppTOML::parseTOML(paste(lines, collapse = "\n"), fromFile = FALSE)$project
  extras <- c(if (.Platform$OS.type == "unix") "mpi", if (gpu) "gpu") # MPI: the faster backend on CPUs
  list(
    packages = c(unlist(project$dependencies), unlist(project[["optional-dependencies"]][extras])),
    python_version = strsplit(project[["requires-python"]], ",", fixed = TRUE)[[1L]]
  )
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
