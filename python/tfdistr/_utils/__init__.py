"""What every layer uses: arguments, the environment, files that can be trusted. Nothing of training."""
