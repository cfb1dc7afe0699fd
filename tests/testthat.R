library(testthat)
library(tfdistr)

test_check("tfdistr")
