"""What is packed: a site as it is, or a study whose site is drawn for it."""

from pathlib import Path

from headbook.errors import StudyError
from headbook.output_folder import OutputKind, has_manifest


def is_site(source: Path, *, anonymous: bool) -> bool:
    """Whether a folder holds a site to be packed as it is; a study, if not.

    Raises:
        StudyError: it holds neither, or a site that names its author.
    """
    if has_manifest(source, OutputKind.STUDY):
        return False
    if not has_manifest(source, OutputKind.SITE):
        raise StudyError(
            f"{source}: neither a site nor a study; expected a folder that Headbook has written"
        )
    if anonymous:
        raise StudyError(
            f"{source}: a site; expected a study for --anonymous, which draws the pages again "
            "without names: a folder of headbook collect, or of headbook build --keep-study"
        )
    return True
