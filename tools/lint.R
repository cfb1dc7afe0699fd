# lintr over all R code; fails if it finds anything. Examples and vignettes use functions of keras3, which may
# not be here, so lintr cannot know these.
folders <- Filter(dir.exists, c("R", "tests", "tools", "examples", "benchmarks", "vignettes"))
lints <- unlist(lapply(folders, function(folder) {
  uses_keras3 <- folder %in% c("examples", "vignettes")
  Filter(function(lint) !(uses_keras3 && lint$linter == "object_usage_linter"), lintr::lint_dir(folder))
}), recursive = FALSE)
for (lint in lints) print(lint)
cat(sprintf("lintr: %d lint(s) in %s\n", length(lints), toString(folders)))
quit(status = as.integer(length(lints) > 0L))
