"""Writes a study's report and images into its directory. What is in them is page.py's and images.py's business."""

from pathlib import Path

from tuner.errors import StudyError
from tuner.report.material import Material
from tuner.report.page import page
from tuner.report.sections import first_plots, sections
from tuner.store import Store, write_atomically


def write_report(store: Store, *, images: bool = False) -> Path:
    """Writes `report.html` from the study's files, finished or not.

    Args:
        store: the study.
        images: whether to write a PNG of each section's first plot too, into `plots`.

    Raises:
        StudyError: nothing has been measured yet, a file cannot be read, or the report cannot be written.
    """
    material = Material.of(store)
    if not material.records:
        raise StudyError(f"study {material.config.study!r} has no finished trial yet; a report needs one")
    found = sections(material)
    try:
        write_atomically(store.report, page(material, found))
        if images:
            from tuner.report.images import draw

            store.images.mkdir(exist_ok=True)
            for plot in first_plots(found):
                draw(plot, store.images)
    except OSError as error:
        raise StudyError(
            f"{store.report}: cannot be written ({error.strerror}); free space or correct its permissions"
        ) from error
    return store.report
