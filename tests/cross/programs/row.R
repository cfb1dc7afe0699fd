# nolint start: object_usage_linter, undesirable_operator_linter. in_r.R has the functions.
# An R session that evaluates a row, as row.py does in Python: row.R ROW OUTPUT
arguments <- commandArgs(TRUE)
Sys.setenv(SESSION = Sys.getpid()) # for callbacks that kill it
library(tfdistr)
here <- Sys.getenv("CROSS")
Sys.setenv(MODELS_IN_R = file.path(here, "models.R"))
tfdistr:::core() # its Python package comes first
in_python <- reticulate::import_from_path("in_python", here, convert = FALSE)
source(file.path(here, "in_r.R"))
row <- paste(readLines(arguments[[1L]]), collapse = "\n")
observed <- observe(row, "r", list())
json <- reticulate::import("json")
writeLines(json$dumps(in_python$of_r(observed)), arguments[[2L]])
# A fork of R skips the end of R, in which a rank leaves its peers, MPI and no files.
reticulate::import("tfdistr.utils.at_exit")$run_at_exit()
reticulate::import("tfdistr.collectives.mpi.world")$finish()
unlink(tempdir(), recursive = TRUE)
# nolint end
