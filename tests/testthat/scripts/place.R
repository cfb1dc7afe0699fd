# A rank of mpiexec: says who it is, before a strategy is made and after it.
output <- commandArgs(TRUE)[[1L]]
library(tfdistr)

place <- function() list(worker_index(), num_workers(), is_chief())
before <- place()
strategy <- make_strategy()
saveRDS(list(before = before, after = place()), output)
