"""One module per command of the `tune` program, loaded when that command is called."""
