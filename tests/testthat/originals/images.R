# Small images in place of MNIST, with the form of keras3's dataset_mnist(): 8 by 8 pixels from 0 to 255.
load_data <- function() {
  lapply(c(train = "train", test = "test"), function(split) {
    arrays <- tfdistr::load_dataset("digits", split)$arrays()
    list(x = floor(arrays[[1L]][, , , 1L] * 15.9375), y = as.integer(arrays[[2L]]))
  })
}
