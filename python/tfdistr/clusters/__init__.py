"""Starting the workers of a job, watching them, and ending them."""
