"""`tune report STUDY`."""

import webbrowser
from typing import Annotated

from cyclopts import Parameter

from tuner.commands.options import OUT, Debug, Out, StudyName
from tuner.console import Narrator
from tuner.report import write_report
from tuner.store import Store


def report(
    study: StudyName,
    *,
    out: Out = OUT,
    open: Annotated[bool, Parameter(help="Open it in the browser.")] = False,  # noqa: A002 - the option's name
    images: Annotated[bool, Parameter(help="Write the plots as PNG files too, into the folder `plots`.")] = False,
    debug: Debug = False,
) -> int:
    """Write a study's report: one HTML file with the answer, the reasons and the plots; finished or not."""
    del debug
    store, narrator = Store.open(out, study), Narrator()
    path = write_report(store, images=images)
    narrator.line(f"report      {path}")
    if images:
        narrator.line(f"images      {len(list(store.images.glob('*.png')))} in {store.images}")
    if open and not webbrowser.open(path.absolute().as_uri()):
        narrator.line("warning     no browser was found; open the file yourself")
    return 0
