"""The kinds of clusters: a folder for each, and what they share."""
