"""Virtual workers: training whose result is bitwise identical on any number of workers.

Each global batch has a fixed number of shares, one for each virtual worker. A worker computes the steps of
its virtual workers, each with one thread. Sums over the shares have a fixed order. So the result is a
function of the seed, the data and the number of virtual workers, and not of the machines.

Source: EasyScale (Li et al., SC'23) does this for PyTorch on GPUs.
"""
