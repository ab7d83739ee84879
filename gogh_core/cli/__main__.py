"""`python -m gogh_core.cli` is `gogh`."""

from gogh_core.cli import main

main()
