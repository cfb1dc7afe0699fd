# What a bug report needs.

#' Collect what a bug report needs
#'
#' Collects what tfdistr runs on and what keeps a cluster from starting: the versions and places of R, Python
#' and the packages that matter, the R packages that are attached, the machine, the environment variables that
#' change what TensorFlow, Python, MPI and the schedulers do, and the table of [doctor()]. `print()` shows it
#' in a form for a bug report.
#'
#' @inheritParams doctor
#' @return A list of class `tfdistr_sitrep`: `config`, the data frame of [tfdistr_config()]; `machine` and
#'   `variables`, named character vectors; `attached`, a character vector of packages with their versions; and
#'   `checks`, the data frame of [doctor()].
#' @section Errors: `tfdistr_error_argument` if an argument is not of that form.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' tfdistr_sitrep()
#' @family clusters
#' @export
tfdistr_sitrep <- function(timeout = 20) {
  checks <- doctor(timeout = timeout)
  info <- Sys.info()
  machine <- c(
    system = paste(info[["sysname"]], info[["release"]], info[["machine"]]),
    cores = as.character(reticulate::import("os")$cpu_count()),
    locale = Sys.getlocale("LC_CTYPE"),
    session = if (interactive()) "interactive" else "a script",
    RStudio = if (nzchar(Sys.getenv("RSTUDIO"))) "yes" else "no"
  )
  attached <- sub("package:", "", grep("^package:", search(), value = TRUE), fixed = TRUE)
  versions <- vapply(attached, function(name) as.character(utils::packageVersion(name)), "")
  structure(
    list(
      config = tfdistr_config(), machine = machine, attached = paste(attached, versions),
      # The core knows which variables matter, and which may be secrets.
      variables = unlist(core(convert = TRUE)$relevant_variables(as.list(Sys.getenv()))), checks = checks
    ),
    class = "tfdistr_sitrep"
  )
}

#' @export
print.tfdistr_sitrep <- function(x, ...) {
  named <- function(values) if (length(values)) paste0(format(names(values)), "  ", values) else "none"
  section <- function(title) cli::cat_line("\n", title, "\n", strrep("-", nchar(title)))
  section("Versions")
  print(x$config)
  section("Machine")
  cli::cat_line(named(x$machine))
  section("Attached packages")
  cli::cat_line(paste(x$attached, collapse = ", "))
  section("Environment")
  cli::cat_line(named(x$variables))
  section("Checks")
  print(x$checks)
  invisible(x)
}
