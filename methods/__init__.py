"""One file per plug-in; the folder listing is the registry."""
