"""Workers that Ray actors run."""
