"""Entry point of ``python -m headbook``."""

from headbook.cli.main import main

main()
