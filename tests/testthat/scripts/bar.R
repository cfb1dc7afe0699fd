# Shows a bar where none of its output is a terminal.
options(cli.dynamic = TRUE, cli.ansi = FALSE)
display <- getFromNamespace("make_display", "tfdistr")(1)
show <- function(event, ...) display$event(list(event = event, worker = 0L, ...))

show("started")
show("train_begin", epochs = 2L, steps = 4L)
show("epoch_begin", epoch = 0L)
for (step in 1:3) {
  Sys.sleep(0.3) # cli shows a few updates a second
  show("batch", epoch = 0L, step = step, steps = 4L, metrics = list(loss = 1 / step))
}
show("epoch_end", epoch = 0L, metrics = list(loss = 0.25), seconds = 1)
show("train_begin", epochs = 2L, steps = NULL)
show("epoch_begin", epoch = 1L)
Sys.sleep(0.3)
show("batch", epoch = 1L, step = 7L, steps = NULL, metrics = list(loss = 0.125))
display$close()
