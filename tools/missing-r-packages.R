# Prints the packages that DESCRIPTION names and that R does not have, or has too old.
# reticulate is left out: it has a script of its own.
fields <- read.dcf("DESCRIPTION", c("Imports", "Suggests", "Config/Needs/development"))
wanted <- trimws(unlist(strsplit(fields, ",")))
name <- sub("[ (].*", "", wanted)
version <- ifelse(grepl(">=", wanted), sub(".*>= *([0-9.-]+).*", "\\1", wanted), "0")
have <- mapply(function(name, version) {
  path <- find.package(name, quiet = TRUE)
  length(path) == 1L && packageVersion(name) >= version
}, name, version)
writeLines(setdiff(name[!have], "reticulate"))
