"""Reading the sessions of other programs and files, and merging them into a native store."""
