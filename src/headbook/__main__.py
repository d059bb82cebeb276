"""``python -m headbook``."""

from headbook.cli import main

main()
