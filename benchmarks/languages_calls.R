# nolint start: object_usage_linter. The functions of in_r.R.
# The seconds of a call of each function, from R; see languages.py. Arguments: ROWS OUT.
library(tfdistr)

arguments <- commandArgs(trailingOnly = TRUE)
cross <- Sys.getenv("CROSS")
reticulate::import("sys", convert = FALSE)$path$insert(0L, cross)
in_python <- reticulate::import("in_python", convert = FALSE)
Sys.setenv(MODELS_IN_R = file.path(cross, "models.R"))
source(file.path(cross, "in_r.R"))

# As in languages_calls.py.
budget <- 1
most <- 200L

seconds_of <- function(row) {
  environment <- as.list(row$environment)
  if (length(environment)) do.call(Sys.setenv, environment)
  on.exit(Sys.unsetenv(names(environment)))
  call <- exported(row$call)
  given <- evaluate_arguments(row$arguments)
  do.call(call, given, quote = TRUE)
  found <- numeric()
  end <- Sys.time() + budget
  while (!length(found) || (length(found) < most && Sys.time() < end)) {
    began <- Sys.time()
    do.call(call, given, quote = TRUE)
    found <- c(found, as.numeric(Sys.time() - began, units = "secs"))
  }
  stats::median(found)
}

rows <- jsonlite::fromJSON(arguments[[1L]], simplifyDataFrame = FALSE, simplifyMatrix = FALSE)
seconds <- lapply(rows, seconds_of)
names(seconds) <- vapply(rows, function(row) row$call, "")
jsonlite::write_json(seconds, arguments[[2L]], auto_unbox = TRUE, digits = NA)
# nolint end
