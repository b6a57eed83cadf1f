"""The README's figure: the races of all systems on the GPUs that have records, as the book's first page has them."""

import html
from pathlib import Path

from matplotlib import pyplot as plt

from artifact import command, paths
from artifact.book import figures
from artifact.drawing import provenance, style
from artifact.drawing.pages import front
from artifact.measure import records
from artifact.verdicts import judge, load

README_FIGURE = paths.ROOT / "book" / "_static" / "readme.svg"
#: A picture in a README follows the reader's colour scheme by itself.
_SCHEME = "@media (prefers-color-scheme: dark) { svg { filter: invert(1) hue-rotate(180deg) } }"


def readme(folder: Path, target: Path = README_FIGURE) -> Path:
    """Write the README's figure, an SVG that stands alone: a GPU's records in `folder`, and those beside it.

    Raises FileNotFoundError where no kernel raced a library of the vendor.
    """
    found = provenance.folders(folder, folder.parent)
    style.apply()
    drawn, said = front.raced(found, judge.everywhere(load.claims(), found))
    if drawn is None:
        raise FileNotFoundError(
            f"{folder.name} has no records of a kernel beside a library of the vendor: make measure"
        )
    plt.close(drawn[2])
    text = (
        figures.to_svg(drawn[0], "readme")
        .replace('<style type="text/css">', f'<style type="text/css">{_SCHEME}', 1)
        .replace("<svg ", f'<svg role="img" aria-label="{html.escape(said["alt"])}" ', 1)
    )
    return records.write_text(target, text + "\n")


@command.program(
    "artifact.drawing.headline",
    __doc__,
    command.option("what", choices=["readme"], help="the figure of the README"),
    command.option("--gpu", default=paths.HOME, help="whose records (default: %(default)s)"),
    command.option("--records", type=Path, default=paths.RECORDED, help="default: the shipped ones"),
    command.option("--output", type=Path, default=README_FIGURE),
)
def main(options: command.Options) -> None:
    """Draw the README's figure; errors are one sentence on stderr and exit code 2."""
    print(readme(records.resolve(options.gpu, options.records), options.output))


if __name__ == "__main__":
    raise SystemExit(main())
