# The progress of a job, shown once for all of its workers: cli for R, rich for Python (jobs/progress.py).

# The display of a job's events (see supervision/events.py of the core): `event` shows one event, of `kinds`, and
# `close` ends the display.
#
# verbose: 0 for warnings only; 1 for a bar with metrics while an epoch runs, and a line for each finished
#   epoch; 2 for the lines only; "auto" for 1 if the session is interactive, else 0. Where no bar can be
#   drawn, 1 is 2.
make_display <- function(verbose, call = rlang::caller_env()) {
  if (identical(verbose, "auto")) {
    verbose <- as.integer(interactive())
  } else if (!(is.numeric(verbose) && length(verbose) == 1L && verbose %in% 0:2)) {
    abort(
      "argument", '`verbose` must be "auto", 0, 1 or 2.',
      received = rlang::expr_deparse(verbose)[[1L]],
      fix = "Use 0 for silence, 1 for a progress bar, 2 for one line an epoch.",
      call = call
    )
  }
  bar <- if (verbose == 1L && cli::is_dynamic_tty()) new_bar() else no_bar
  # Several workers report their training. Only the reports of the chief are shown.
  job <- rlang::env(chief = Inf, epochs = NULL, steps = NULL, warnings = character())
  title <- function(event) sprintf("Epoch %d/%d", event$epoch + 1L, job$epochs)
  # Every display warns once of each warning, since most warnings come from all workers. It also shows the
  # output of the workers, which arrives only with `follow = TRUE`.
  on <- list(
    warning = function(event) {
      if (!event$message %in% job$warnings) {
        job$warnings <- c(job$warnings, event$message)
        bar$done()
        if (isTRUE(event$of_user)) {
          warn_user(event$message, event$worker)
        } else {
          warn_user(in_r(event$message), category = event$category)
        }
      }
    },
    note = function(event) cli::cli_verbatim(in_r(event$message)),
    log = function(event) {
      cli::cli_verbatim(paste0(if (!is.null(event$worker)) sprintf("[worker %d] ", event$worker), event$line))
    }
  )
  if (verbose > 0L) {
    on$started <- function(event) bar$begin("Starting the workers", NULL)
    on$train_begin <- function(event) {
      if (event$worker <= job$chief) {
        job$chief <- event$worker
        job$epochs <- event$epochs
        job$steps <- event$steps
      }
    }
    on$epoch_begin <- function(event) bar$begin(title(event), job$steps)
    on$batch <- function(event) bar$update(event$step, format_metrics(event$metrics))
    on$epoch_end <- function(event) {
      cli::cli_verbatim(sprintf("%s  %.1f s  %s", title(event), event$seconds, format_metrics(event$metrics)))
    }
    on$restart <- function(event) {
      job$chief <- Inf
      cli::cli_verbatim(sprintf("Starting the workers again: %s.", event$reason))
      bar$begin("Starting the workers", NULL)
    }
  }
  list(
    event = function(event) {
      of_chief <- event$event %in% c("epoch_begin", "batch", "epoch_end")
      show <- on[[event$event]]
      if (!is.null(show) && (!of_chief || event$worker == job$chief)) show(event)
      invisible()
    },
    kinds = names(on),
    close = function() bar$done()
  )
}

# What the core calls with each event of these kinds.
shown_events <- function(show, kinds) core(convert = TRUE)$events_for_r(show, as.list(kinds))

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

no_bar <- list(begin = function(...) NULL, update = function(...) NULL, done = function() NULL)

format_metrics <- function(metrics) {
  format_one <- function(value) {
    if (!is.numeric(value)) {
      as.character(value)
    } else if (is.na(value) || value == 0 || abs(value) >= 1e-3) {
      sprintf("%.4f", value)
    } else {
      sprintf("%.3e", value)
    }
  }
  paste0(names(metrics), ": ", vapply(metrics, format_one, ""), collapse = "  ")
}
