# What an R user does after the fit: predict, evaluate, continue, save.

model <- function() {
  keras <- keras_module()
  model <- keras$Sequential(list(keras$layers$Dense(units), keras$layers$Dense(3L, "softmax")))
  model$compile("adam", "sparse_categorical_crossentropy", metrics = list("accuracy"))
  model
}
units <- 4L
keras_module <- function() reticulate::import("keras")
x <- matrix(stats::rnorm(300), 60)
y <- rep(0:2, 20)

local_fit <- function(..., cluster = NULL) {
  distributed_fit(model, x, y, batch_size = 20, seed = 1, ..., cluster = cluster)
}

# One fit for the tests that only look at it.
looked_at <- new.env()
some_fit <- function() {
  looked_at$fit <- looked_at$fit %||% local_fit(epochs = 2, validation_split = 0.25)
  looked_at$fit
}

test_that("predict() and evaluate() give the values of the model, here and on workers", {
  cluster <- local_cluster(workers = 2)
  fit <- local_fit(epochs = 2, cluster = cluster)
  expected <- fit$model$predict(x, verbose = 0L)
  expect_identical(predict(fit, x), expected)
  metrics <- evaluate(fit, x, y)
  expect_named(metrics, c("accuracy", "loss"), ignore.order = TRUE)
  expect_equal(evaluate(fit, x, factor(y), cluster = cluster), metrics, tolerance = 1e-6)

  folder <- file.path(withr::local_tempdir(), "out")
  files <- predict(fit, x, output = folder, cluster = cluster)
  expect_identical(basename(files), c("predictions-00000.npy", "predictions-00001.npy"))
  numpy <- reticulate::import("numpy")
  expect_identical(do.call(rbind, lapply(files, numpy$load)), expected)
  table <- predict(fit, x, output = file.path(folder, "table"), output_format = "parquet")
  expect_identical(basename(table), "predictions-00000.parquet")
  read <- reticulate::import("pyarrow.parquet")$read_table(table)
  expect_identical(unlist(read$to_pydict()$predictions), c(t(expected)))
})

test_that("a fit continues as one run would, also on workers", {
  whole <- local_fit(epochs = 3)
  half <- local_fit(epochs = 1)
  rest <- distributed_fit(half, x, y, batch_size = 20, seed = 1, epochs = 3, initial_epoch = 2)
  expect_identical(rest$history$loss, whole$history$loss[2:3])
  expect_identical(as.data.frame(rest)$epoch, rep(2:3, 2L))
  expect_identical(c(half$params$initial_epoch, rest$params$initial_epoch), 1:2)
  workers <- distributed_fit(
    half, x, y,
    batch_size = 20, seed = 1, epochs = 3, initial_epoch = 2, cluster = local_cluster(workers = 2)
  )
  expect_equal(workers$history$loss, rest$history$loss, tolerance = 1e-6)
})

# A model in an .rds file is an invalid pointer.
test_that("keras3#86 #407 #799: saveRDS() and readRDS() keep the model, in another session", {
  fit <- local_fit()
  folder <- withr::local_tempdir()
  files <- file.path(folder, c("fit.rds", "x.rds", "out.rds"))
  saveRDS(fit, files[[1L]])
  saveRDS(x, files[[2L]])
  session <- "
    files <- commandArgs(TRUE)
    library(tfdistr)
    fit <- readRDS(files[[1L]])
    x <- readRDS(files[[2L]])
    first <- predict(fit, x)
    saveRDS(fit, files[[1L]])
    fit <- readRDS(files[[1L]])
    saveRDS(list(first, fit$model$predict(x, verbose = 0L), predict(fit, x)), files[[3L]])
  "
  script <- file.path(folder, "script.R")
  writeLines(session, script)
  ended <- processx::run(file.path(R.home("bin"), "Rscript"), c(script, files), error_on_status = FALSE)
  expect_identical(ended$status, 0L, info = ended$stderr)
  expected <- predict(fit, x)
  expect_identical(readRDS(files[[3L]]), list(expected, expected, expected))
})

test_that("bundle() has nothing to add to a fit", {
  skip_if_not_installed("bundle")
  of_bundle <- function(name) getExportedValue("bundle", name)
  fit <- some_fit()
  again <- unserialize(serialize(of_bundle("bundle")(fit), NULL))
  expect_identical(predict(of_bundle("unbundle")(again), x), predict(fit, x))
})

test_that("what cannot be saved says so when it is read", {
  fit <- some_fit()
  attr(fit, "saved") <- list(error = "cannot pickle")
  file <- withr::local_tempfile()
  saveRDS(fit, file)
  fit <- readRDS(file)
  expect_error(predict(fit, x), "was saved without its model", class = "tfdistr_error_argument")
})

# tensorflow#575 (R): the first validation with an R generator freezes under a strategy. keras3#166,
# keras3#355, keras3#584, keras3#1090: R generators are in a deadlock, or much slower than others (how much:
# make bench T=generators). keras3#1157: data larger than memory has no way to several devices.
test_that("tensorflow#575, keras3#166 #355 #584 #1090 #1157: R generators train on one worker and on two", {
  given <- function() {
    calls <- 0L
    function() {
      calls <<- calls + 1L # nolint
      rows <- ((calls - 1L) %% 3L) * 20L + 1:20
      list(x[rows, ], y[rows])
    }
  }
  expected <- local_fit(epochs = 2, shuffle = FALSE, validation_data = list(x, y))
  for (cluster in list(NULL, local_cluster(workers = 2))) {
    fit <- distributed_fit(
      model, given(),
      validation_data = given(), steps_per_epoch = 3, validation_steps = 3, epochs = 2, seed = 1,
      cluster = cluster
    )
    expect_equal(fit$history, expected$history, tolerance = 1e-6)
  }
  ends <- local({
    calls <- 0L
    function() {
      calls <<- calls + 1L # nolint
      if (calls %% 4L) list(x[1:20, ], y[1:20])
    }
  })
  expect_length(distributed_fit(model, ends, epochs = 2, seed = 1)$history$loss, 2L)
})

test_that("data that does not fit is named", {
  fit <- distributed_fit(
    function() {
      keras <- keras_module()
      model <- keras$Sequential(list(keras$layers$Dense(1L)))
      model$compile("sgd", "mse")
      model
    },
    mtcars[c("wt", "qsec")], mtcars$mpg / 20,
    seed = 1
  )
  expect_identical(predict(fit, mtcars), predict(fit, mtcars[c("qsec", "wt")]))
  # By hand, as versions of testthat show errors differently.
  said <- function(code) cat(conditionMessage(expect_error(code, class = "tfdistr_error_argument")))
  expect_snapshot(said(predict(fit, mtcars["wt"])))
  expect_snapshot(said(predict(fit, as.matrix(mtcars[1:3]))))
  expect_snapshot(said(evaluate(fit, mtcars)))
  expect_snapshot(said(evaluate(1)))
})

test_that("plot() takes ggplot2 where it is installed, else base graphics", {
  fit <- some_fit()
  grDevices::pdf(NULL)
  withr::defer(grDevices::dev.off())
  if (requireNamespace("ggplot2", quietly = TRUE)) expect_s3_class(plot(fit), "ggplot")
  expect_identical(plot(fit, lwd = 2), fit) # a parameter of base graphics
  skip_if_not_installed("ggplot2")
  drawn <- ggplot2::autoplot(fit)
  expect_s3_class(drawn, "ggplot")
  expect_identical(nrow(ggplot2::layer_data(drawn)), 8L)
})

test_that("a fit is its model in Python", {
  fit <- some_fit()
  expect_identical(reticulate::r_to_py(fit)$count_params(), fit$model$count_params())
})

test_that("later data has the columns and the classes of the training, whatever their order", {
  pets <- factor(rep(c("cat", "dog", "owl"), 20))
  named <- `colnames<-`(x, paste0("x", 1:5))
  reordered <- named[, 5:1]
  only <- pets != "cat"
  validation <- list(reordered[only, ], droplevels(pets[only]))
  train <- function(x, validation) {
    distributed_fit(model, x, pets, epochs = 2, seed = 1, validation_data = validation, verbose = 0)
  }
  fit <- train(named, validation)
  plain <- train(x, list(x[only, ], as.integer(pets[only]) - 1L))
  expect_identical(fit$history, plain$history)
  expect_identical(train(as.data.frame(named), validation)$history, plain$history)
  loss <- evaluate(fit, validation[[1]], validation[[2]])$loss
  expect_equal(loss, fit$history$val_loss[[2]], tolerance = 1e-6)
  expect_identical(evaluate(fit, named[only, ], as.character(pets[only]))$loss, loss)
  again <- unserialize(serialize(fit, NULL))
  for (later in list(reordered, as.data.frame(reordered), x)) {
    expect_identical(predict(again, later), predict(fit, named))
  }
  more <- function(x, y) distributed_fit(fit, x, y, epochs = 3, initial_epoch = 3, seed = 1, verbose = 0)
  expect_identical(more(reordered, factor(pets, c("owl", "dog", "cat")))$history, more(named, pets)$history)
  fox <- "Received: 'fox', where the classes are 'cat', 'dog', 'owl'"
  expect_error(evaluate(fit, named[1:2, ], factor(c("cat", "fox"))), fox, class = "tfdistr_error_argument")
  expect_error(predict(fit, named[, 1:4]), "no column 'x5' among", class = "tfdistr_error_argument")
})

test_that("batches of a generator have the columns and the classes of the first one, and so has later data", {
  pets <- factor(rep(c("cat", "dog", "owl"), 20))
  named <- `colnames<-`(x, paste0("x", 1:5))
  batches <- function(reorder) {
    count <- new.env()
    count$calls <- 0L
    function() {
      count$calls <- count$calls + 1L
      rows <- if (count$calls %% 2L) 1:30 else which(pets != "cat")
      y <- if (reorder) droplevels(pets[rows]) else pets[rows]
      list(named[rows, if (reorder && count$calls %% 2L == 0L) 5:1 else 1:5], y)
    }
  }
  train <- function(data, cluster = NULL) {
    distributed_fit(
      model, data, steps_per_epoch = 2, epochs = 2, seed = 1, verbose = 0, cluster = cluster,
      validation_data = list(named[, 5:1], factor(pets, c("owl", "dog", "cat")))
    )
  }
  fit <- train(batches(TRUE), local_cluster(2))
  expect_equal(fit$history, train(batches(FALSE))$history, tolerance = 1e-6)
  later <- evaluate(fit, named[, 5:1], factor(pets, c("owl", "cat", "dog")))$loss
  expect_equal(later, fit$history$val_loss[[2L]], tolerance = 1e-6)
})

test_that("evaluate() of other objects finds the methods of other packages", {
  skip_if_not_installed("generics")
  table <- asNamespace("generics")[[".__S3MethodsTable__."]]
  registerS3method("evaluate", "tfdistr_other", function(object, ...) "found", asNamespace("generics"))
  withr::defer(rm("evaluate.tfdistr_other", envir = table))
  expect_identical(evaluate(structure(1, class = c("more", "tfdistr_other"))), "found")
  other <- structure(1, class = "none")
  expect_error(evaluate(other), "an object of class none", class = "tfdistr_error_argument")
})

test_that("factors come out as factors, and weigh classes by their levels", {
  keras <- reticulate::import("keras")
  pets <- factor(rep(c("cat", "dog", "owl"), 20))
  fit <- distributed_fit(model, x, pets, seed = 1, verbose = 0, class_weight = c(owl = 3, cat = 1))
  by_number <- distributed_fit(model, x, pets, seed = 1, verbose = 0, class_weight = list("2" = 3))
  expect_identical(fit$history, by_number$history)
  raw <- predict(fit, x)
  expect_identical(predict(fit, x, type = "prob"), `colnames<-`(raw, levels(pets)))
  expect_identical(predict(fit, x, type = "class"), factor(levels(pets)[max.col(raw)], levels(pets)))
  expect_identical(predict(fit, x, type = "numeric"), raw)
  refused <- function(code, ...) {
    error <- expect_error(code, class = "tfdistr_error_argument")
    for (part in c(...)) expect_match(conditionMessage(error), part, fixed = TRUE)
  }
  refused(distributed_fit(model, x, pets, class_weight = c(fox = 3, cat = 1)), "'fox', where the classes are")
  missing <- suppressWarnings(predict(fit, replace(x, 2, NA), type = "prob"))
  expect_identical(is.na(missing[1:3, 1]), c(FALSE, TRUE, FALSE))
  expect_identical(missing[-2, ], predict(fit, x, type = "prob")[-2, ])
  expect_identical(which(is.na(suppressWarnings(predict(fit, replace(x, 2, NA), type = "class")))), 2L)
  weights <- distributed_fit(model, x, pets, seed = 1, verbose = 0, class_weight = 60 / table(pets))
  three <- c(cat = 3, dog = 3, owl = 3)
  by_name <- distributed_fit(model, x, pets, seed = 1, verbose = 0, class_weight = three)
  expect_identical(weights$history, by_name$history)
  refused(predict(fit, x, type = "classes"), "must be \"raw\"", "Received: \"classes\"")
  refused(predict(fit, x, type = "class", output = tempfile()), "Received: type = \"class\"")
  numbers <- distributed_fit(model, x, as.integer(pets) - 1L, seed = 1, verbose = 0)
  refused(predict(numbers, x, type = "prob"), "needs a fit whose `y` had classes")
})

test_that("classes that are numbers are not mistaken for the numbers of classes", {
  counted <- rep(1:3, 20)
  fit <- distributed_fit(model, x, factor(counted), seed = 1, verbose = 0)
  expect_error(evaluate(fit, x, counted), "the classes are '1', '2', '3'", class = "tfdistr_error_argument")
  expect_identical(evaluate(fit, x, as.character(counted)), evaluate(fit, x, factor(counted, 3:1)))
  # As as.integer() makes them of a factor.
  error <- expect_error(distributed_fit(model, x, counted, verbose = 0), class = "tfdistr_error_argument")
  expect_match(conditionMessage(error), "Received: the label 3, where the model has 3 outputs", fixed = TRUE)
})

test_that("each of several outputs has its own classes", {
  values <- matrix(c(0.1, 0.8, 0.9, 0.2), 2)
  outputs <- list(kind = values, size = matrix(1:2), old = matrix(0:1))
  by <- function(type, levels) outputs_as(type, outputs, levels)
  levels <- list(c("a", "b"), NULL, c("no", "yes"))
  expected <- list(kind = factor(c("b", "a")), size = 1:2, old = factor(c("no", "yes")))
  expect_identical(by("class", levels), expected)
  expect_identical(by("prob", levels)$old, matrix(c(1, 0, 0, 1), 2, dimnames = list(NULL, c("no", "yes"))))
  one <- function(value, ...) outputs_as("class", value, c("no", "yes"), ...)
  expect_error(one(matrix(-2)), "must be probabilities.*Received: values from -2 to -2")
  expect_error(one(matrix(1, 2, 3)), "must be a column for each class.*Received: \\[2, 3\\]")
})

test_that("set.seed() determines the seed that is not given", {
  withr::local_preserve_seed()
  seed_after <- function(seed) {
    set.seed(seed)
    distributed_fit(model, x, y, verbose = 0)$params$seed
  }
  expect_identical(seed_after(5), seed_after(5))
  expect_false(seed_after(5) == seed_after(6))
})

test_that("missing numbers among the inputs are told before the training", {
  holed <- x
  holed[2:3, 1] <- NA
  holed[4, 1] <- NaN
  told <- "`x` has 2 missing values of 300, which are NaN for the model."
  warnings <- testthat::capture_warnings(distributed_fit(model, holed, y, verbose = 0, seed = 1))
  expect_identical(warnings[[1]], told)
  expect_warning(python_inputs(list(a = x, b = list(holed)), "x"), "`x$b[[1]]` has 2 missing", fixed = TRUE)
})
