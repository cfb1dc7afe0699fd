test_that("a number of workers that may change is a part of the cluster, and needs virtual workers", {
  cluster <- local_cluster(c(2, 3), warm = FALSE)
  expect_identical(cluster$workers, 3L)
  expect_identical(cluster$fewest, 2L)
  expect_output(print(cluster), "2 to 3 workers on this machine")
})
