library(testthat)
library(tfdistr)

# On a machine without the Python packages, such as CRAN's, the tests are skipped, and nothing is installed.
# Another process looks for the packages, since some tests need a session that has not started Python.
ask <- "library(tfdistr); for (name in c('tensorflow', 'keras', 'mpi4py')) reticulate::import(name)"
answer <- suppressWarnings(system2(
  file.path(R.home("bin"), "Rscript"), c("-e", shQuote(ask)),
  env = c("RETICULATE_USE_MANAGED_VENV=no", "TF_CPP_MIN_LOG_LEVEL=3"), stdout = TRUE, stderr = TRUE
))
if (is.null(attr(answer, "status"))) {
  test_check("tfdistr") # in two processes, if TESTTHAT_CPUS does not say otherwise
} else {
  cat("Skipped, as no Python with tensorflow, keras and mpi4py is here:\n", answer, sep = "\n")
}
