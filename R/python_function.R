# Functions of Python files for R. In Python, users pass the function itself.

#' Name a function of a Python file
#'
#' [distributed_fit()] takes such a function as `model`, `x`, `validation_data` or `callbacks`, and
#' [model_parallel()] as `placement`. This call parses the file, and does not run it. Each process that calls
#' the function imports the file from its path, as a module of its own. The file may import modules from its
#' folder. It must be at this path on all machines of the cluster, and stay as it is: a fit that was saved
#' with [saveRDS()] has the path and the name, and makes its model by the file.
#'
#' If `model` is such a function, and no argument is an R function, the workers are Python processes.
#' Otherwise they are R processes, whose Python imports the file.
#'
#' @param file String: the path of the file.
#' @param name String: the name of the function in the file.
#' @return A Python object: a function, for [distributed_fit()].
#' @section Errors: `tfdistr_error_argument` if the file is not there or has a syntax error, or if it has no
#'   function of this name. Processes raise it, too, if the file has changed since.
#' @examplesIf interactive() || nzchar(Sys.getenv("NOT_CRAN"))
#' file <- tempfile(fileext = ".py")
#' writeLines(c(
#'   "import keras",
#'   "def build(units=1):",
#'   "    model = keras.Sequential([keras.layers.Dense(units)])",
#'   "    model.compile('sgd', 'mse')",
#'   "    return model"
#' ), file)
#' model <- python_function(file, "build")
#' fit <- distributed_fit(model, as.matrix(mtcars["wt"]), mtcars$mpg / 20, seed = 1)
#' fit
#' @family functions for training
#' @export
python_function <- function(file, name) {
  call_core("python_function", convert = FALSE)
}
