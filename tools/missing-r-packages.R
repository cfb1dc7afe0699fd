# Prints the packages that DESCRIPTION names and that R does not have, or has too old.
# Left out: reticulate and keras3 with its family, which have scripts of their own; packages that Debian does
# not have, and rsample, which only tests with them use. Without them, their tests are skipped.
fields <- read.dcf("DESCRIPTION", c("Imports", "Suggests", "Config/Needs/development"))
wanted <- trimws(unlist(strsplit(fields, ",")))
name <- sub("[ (].*", "", wanted)
version <- ifelse(grepl(">=", wanted), sub(".*>= *([0-9.-]+).*", "\\1", wanted), "0")
have <- mapply(function(name, version) {
  path <- find.package(name, quiet = TRUE)
  length(path) == 1L && packageVersion(name) >= version
}, name, version)
left_out <- c(
  "reticulate", "keras3", "tensorflow", "tfdatasets", "arrow", "nanoarrow", "bundle", "parsnip", "rsample",
  "targets", "tune", "workflows", "yardstick"
)
writeLines(setdiff(name[!have], left_out))
