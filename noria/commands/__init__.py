"""The sub-commands of `noria`, one file a group; each is a thin layer over one function elsewhere."""
