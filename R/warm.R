# Warm starts: the fork server is an R process that has loaded what workers need, and forks itself for each
# worker. The core's fork_server/ has the server and its clients; this file has what only R can do.

# Serves in this process. Each fork continues here, and runs the program of its client.
fork_server <- function(args = commandArgs(TRUE)) {
  core()$preload(args[[1L]])
  end_at_quit() # here and not in each fork, as trace() collects garbage
  unlink(tempdir(), recursive = TRUE) # each fork makes a new one in its TMPDIR
  program <- as.character(reticulate::py_to_r(core()$serve(args[[1L]], as.integer(args[[2L]]))))
  user$pid <- Sys.getpid() # of this fork, which the server has prepared
  tempdir(check = TRUE)
  suppressWarnings(rm(".Random.seed", envir = globalenv()))
  run_forked(program)
}

# Runs R code ("-e", CODE) or a script, with its arguments, as Rscript does, and ends the process.
run_forked <- function(program) {
  is_code <- identical(program[[1L]], "-e")
  rest <- program[-seq_len(1L + is_code)]
  core()$set_command_line_of_r(as.list(c("R", "--args", rest)))
  status <- 1L
  tryCatch(
    {
      code <- if (is_code) parse(text = program[[2L]]) else parse(program[[1L]], keep.source = FALSE)
      for (expression in code) eval(expression, globalenv())
      status <- 0L
    },
    error = function(condition) {
      message("Error: ", conditionMessage(condition))
    }
  )
  end_process(status)
}

# Makes quit() end a fork at once, as the end of its program does. The normal end of R would run finalizers of
# the server, and destructors of TensorFlow, which abort as long as Python has not ended.
end_at_quit <- function() {
  end <- bquote(.(end_process)(as.integer(status))) # evaluated in quit(), which has `status`
  for (name in c("quit", "q")) {
    suppressMessages(trace(name, end, where = baseenv(), print = FALSE))
  }
}

#' End the processes that keep TensorFlow loaded for workers
#'
#' These are the fork servers, which [local_cluster()] starts in the background; the workers of this session
#' are their forks. Each ends when the workers that it has forked have ended. The next job starts a fork
#' server again, unless its cluster has `warm = FALSE`.
#'
#' @return `NULL`, invisibly.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' stop_warm_workers()
#' @family clusters
#' @export
stop_warm_workers <- function() {
  core()$stop_warm_workers()
  invisible()
}
