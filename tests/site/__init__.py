"""The site of the documents: what `make docs` adds to the pages that are kept."""
