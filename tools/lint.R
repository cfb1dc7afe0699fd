# lintr over all R code; fails if it finds anything.
folders <- c("R", "tests", "tools", "examples", "benchmarks", "vignettes")
paths <- Filter(dir.exists, folders)
lints <- unlist(lapply(paths, lintr::lint_dir), recursive = FALSE)
for (lint in lints) print(lint)
cat(sprintf("lintr: %d lint(s) in %s\n", length(lints), toString(paths)))
quit(status = as.integer(length(lints) > 0L))
