"""The top of a page as a picture, for the documentation: `make picture`. Needs Chromium."""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--size", default="1120,1330", help="width and height in pixels")
    options = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("There is no Chromium here; install it to take pictures of pages.")
    shot = f"--screenshot={options.picture.resolve()}"
    subprocess.run(
        [browser, *OPTIONS, shot, f"--window-size={options.size}", options.page.resolve().as_uri()],
        check=True,
        capture_output=True,
        timeout=120,
    )
    print(options.picture)


if __name__ == "__main__":
    main()
