# Reads documents and writes them again as R's jsonlite does: a request on each line of standard input.

input <- file("stdin", encoding = "UTF-8")
open(input)
while (length(line <- readLines(input, n = 1L, encoding = "UTF-8")) == 1L) {
  request <- jsonlite::fromJSON(line)
  document <- jsonlite::fromJSON(request$text, simplifyVector = request$simplify)
  settings <- request$settings
  if (identical(settings$digits, "NA")) settings$digits <- NA
  writeLines(enc2utf8(do.call(jsonlite::toJSON, c(list(document), settings))), useBytes = TRUE)
  flush(stdout())
}
