# lintr over the files given, or over all R code; fails if it finds anything. Examples and vignettes use
# keras3, which may not be here: lintr cannot know its functions.
folders <- Filter(dir.exists, c("R", "tests", "tools", "examples", "benchmarks", "vignettes"))
files <- commandArgs(TRUE)
given <- length(files) > 0L
lints <- unlist(lapply(if (given) files else folders, function(path) {
  uses_keras3 <- grepl("^(examples|vignettes)(/|$)", path)
  found <- if (given) lintr::lint(path) else lintr::lint_dir(path)
  Filter(function(lint) !(uses_keras3 && lint$linter == "object_usage_linter"), found)
}), recursive = FALSE)
for (lint in lints) print(lint)
cat(sprintf("lintr: %d lint(s) in %s\n", length(lints), toString(if (given) files else folders)))
quit(status = as.integer(length(lints) > 0L))
