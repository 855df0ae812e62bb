"""Here so that `ranks` and other modules of this folder can be imported from the folders below."""
