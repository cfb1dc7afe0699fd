# What R says of its functions, as JSON: their arguments, the pages of man/, the classes of its conditions.
# Call it with the folder man/ and the kinds of errors.

given <- commandArgs(TRUE)
package <- asNamespace("tfdistr")
declared <- parseNamespaceFile("tfdistr", dirname(getNamespaceInfo(package, "path")))

# Each argument with its value if it has a default.
arguments_of <- function(name) {
  values <- formals(get(name, package))
  lapply(names(values), function(argument) {
    if (rlang::is_missing(values[[argument]])) {
      list(name = argument)
    } else {
      list(name = argument, default = eval(values[[argument]], package))
    }
  })
}

# The text of a part of a page. Code is in backticks. Each item of a list, and what follows the list, begins
# with a bullet.
text_of <- function(part) {
  inner <- function() paste(vapply(part, text_of, ""), collapse = "")
  tag <- attr(part, "Rd_tag")
  switch(if (is.null(tag)) "" else tag,
    TEXT = , VERB = , RCODE = paste(part, collapse = ""),
    COMMENT = "",
    "\\item" = paste0("\u2022 ", inner()),
    "\\itemize" = paste0(inner(), "\u2022"),
    "\\code" = paste0("`", inner(), "`"),
    if (is.list(part)) inner() else paste(part, collapse = "")
  )
}

page <- function(path) {
  parts <- tools::parse_Rd(path)
  tags <- vapply(parts, attr, "", "Rd_tag")
  texts <- function(tag) vapply(parts[tags == tag], text_of, "")
  sections <- parts[tags == "\\section"]
  is_errors <- vapply(sections, function(section) text_of(section[[1L]]) == "Errors", NA)
  list(
    name = trimws(texts("\\name")), aliases = as.list(trimws(texts("\\alias"))), title = texts("\\title"),
    description = paste(c(texts("\\description"), texts("\\details")), collapse = "\u2022"),
    errors = paste(vapply(sections[is_errors], function(section) text_of(section[[2L]]), ""), collapse = "")
  )
}

classes_of <- function(kind) {
  condition <- tryCatch(package$abort(kind, "A rule."), error = identity)
  as.list(grep("^tfdistr_error", class(condition), value = TRUE))
}

methods <- unique(paste(sub("^.*::", "", declared$S3methods[, 1L]), declared$S3methods[, 2L], sep = "."))
named <- function(names, fun) stats::setNames(lapply(names, fun), names)
said <- list(
  exports = named(declared$exports, arguments_of),
  methods = named(methods, arguments_of),
  pages = lapply(list.files(given[[1L]], "[.]Rd$", full.names = TRUE), page),
  classes = named(given[-1L], classes_of)
)
cat(jsonlite::toJSON(said, auto_unbox = TRUE, null = "null", digits = NA))
