"""``tfdistr kubernetes``: a script as the pods of an Indexed Job."""
