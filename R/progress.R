# The progress of a job, shown by cli. In Python: jobs/display.py.

# The display of a job's events: `event()` shows one event, `close()` ends the display.
make_display <- function(verbose, of_script = FALSE, call = rlang::caller_env()) {
  if (identical(verbose, "auto") && isTRUE(getOption("knitr.in.progress"))) verbose <- 0
  with_conditions(call = call, core(convert = TRUE)$display_for_r(
    verbose, function(line) cli::cli_verbatim(line), warn_user, if (cli::is_dynamic_tty()) new_bar(),
    interactive = interactive(), of_script = of_script
  ))
}

# A bar over the steps of the running epoch, which vanishes at the end.
new_bar <- function() {
  bar <- rlang::env(id = NULL)
  done <- function() {
    if (!is.null(bar$id)) cli::cli_progress_done(id = bar$id, .envir = bar)
    bar$id <- NULL
  }
  begin <- function(title, steps) {
    done()
    rlang::local_options(cli.progress_show_after = 0)
    format <- if (is.null(steps)) {
      "{cli::pb_extra$title}  {cli::pb_extra$metrics}"
    } else {
      "{cli::pb_extra$title} {cli::pb_bar} {cli::pb_current}/{cli::pb_total}  {cli::pb_extra$metrics}"
    }
    bar$id <- cli::cli_progress_bar(
      format = format, total = if (is.null(steps)) NA else steps,
      extra = list(title = title, metrics = ""),
      clear = TRUE, .auto_close = FALSE, .envir = bar
    )
    cli::cli_progress_update(set = 0, id = bar$id, force = TRUE, .envir = bar)
  }
  update <- function(step, metrics) {
    if (!is.null(bar$id)) {
      cli::cli_progress_update(set = step, extra = list(metrics = metrics), id = bar$id, .envir = bar)
    }
  }
  list(begin = begin, update = update, done = done)
}
