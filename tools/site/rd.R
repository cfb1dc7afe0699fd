# Writes the pages of man/ as HTML, one for each, and an index: `Rscript rd.R MAN_FOLDER OUTPUT_FOLDER`.
# Links between the pages are "rd:NAME"; the index has a line "NAME <tab> title <tab> aliases" for each page.

folders <- commandArgs(trailingOnly = TRUE)
files <- list.files(folders[[1L]], "[.]Rd$", full.names = TRUE)
names(files) <- sub("[.]Rd$", "", basename(files))

# What an Rd file has under a tag, as text.
tagged <- function(rd, tag) {
  parts <- Filter(function(part) identical(attr(part, "Rd_tag"), tag), rd)
  vapply(parts, function(part) trimws(paste(unlist(part), collapse = "")), "")
}

pages <- lapply(files, tools::parse_Rd, permissive = TRUE)
aliases <- lapply(pages, tagged, "\\alias")
links <- unlist(Map(function(names, page) {
  stats::setNames(rep(paste0("rd:", page), length(names)), names)
}, aliases, names(pages)), use.names = FALSE)
names(links) <- unlist(aliases, use.names = FALSE)

for (name in names(pages)) {
  output <- file.path(folders[[2L]], paste0(name, ".html"))
  tools::Rd2HTML(pages[[name]], output, package = "tfdistr", Links = links, Links2 = character())
}
titles <- vapply(pages, function(page) tagged(page, "\\title")[[1L]], "")
listed <- vapply(aliases, paste, "", collapse = " ")
index <- paste(names(pages), gsub("\\s+", " ", titles), listed, sep = "\t")
writeLines(index, file.path(folders[[2L]], "index.tsv"))
