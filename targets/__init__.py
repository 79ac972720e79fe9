"""One module or folder per target: how to build, check and embed it."""
