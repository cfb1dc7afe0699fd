# What the tests of R functions for workers use.

# Puts variables into the global environment for as long as the test runs.
local_globals <- function(..., frame = parent.frame()) {
  variables <- list(...)
  list2env(variables, globalenv())
  withr::defer(rm(list = names(variables), envir = globalenv()), envir = frame)
}

# What the function gives in an R process that knows nothing of this one.
result_elsewhere <- function(captured) {
  file <- withr::local_tempfile()
  saveRDS(captured, file)
  code <- sprintf("cat(deparse(tfdistr:::restore_functions(readRDS('%s'))$model()))", file)
  output <- system2(file.path(R.home("bin"), "Rscript"), c("--vanilla", "-e", shQuote(code)), stdout = TRUE)
  eval(parse(text = output))
}

in_global <- function(fun) {
  environment(fun) <- globalenv()
  fun
}
