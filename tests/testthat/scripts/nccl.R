# Makes a strategy that is asked for NCCL.
strategy <- tfdistr::make_strategy(communication = "nccl")
