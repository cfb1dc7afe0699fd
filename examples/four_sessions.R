# Open four sessions by hand on this machine, each with a TF_CONFIG of its own, and wait for them.
#
#   Rscript examples/four_sessions.R PORTS SCRIPT [ARGUMENT ...]
#
# PORTS are those of the sessions, such as 10087,10088,10089,10090. Each session runs SCRIPT as a worker; the
# first is the chief. With two_machines/task.R and /tmp/digits.keras, what they print is at the end:
#
#   worker 0 of 4 tasks: loss 0.3620, accuracy 0.8917
#   worker 1 of 4 tasks: loss 0.3620, accuracy 0.8917
#   worker 2 of 4 tasks: loss 0.3620, accuracy 0.8917
#   worker 3 of 4 tasks: loss 0.3620, accuracy 0.8917
#
# If one session fails, the others are ended.
library(processx)
library(tfdistr)

given <- commandArgs(trailingOnly = TRUE)
plan <- tf_config(worker = paste0("127.0.0.1:", strsplit(given[[1]], ",")[[1]]))
sessions <- lapply(cluster_env(plan), function(env) {
  # processx ends a session that is left when this script exits.
  process$new(
    file.path(R.home("bin"), "Rscript"), given[-1], env = c("current", env), stdout = tempfile(), stderr = ""
  )
})
repeat {
  statuses <- lapply(sessions, function(session) session$get_exit_status()) # NULL while it runs
  failed <- which(vapply(statuses, function(status) isTRUE(status != 0), NA))
  if (length(failed) || !any(vapply(statuses, is.null, NA))) break
  Sys.sleep(0.1)
}

for (session in sessions) writeLines(readLines(session$get_output_file()))
for (index in failed) {
  stop("Session ", index - 1, " exited with status ", statuses[[index]], ". The others were ended.",
       call. = FALSE)
}
