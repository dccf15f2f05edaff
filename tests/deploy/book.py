#!/usr/bin/env python3
"""Builds the book with mdBook and checks every link of its pages: the file is there, and so is the anchor.

TOOLS names the directory that tools.sh fills.
"""
import html.parser
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOOK = ROOT / "deploy/book"
LINKS_MIN = 300  # the contents alone are 20 on each page


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.anchors, self.text = [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)

    def handle_data(self, data):
        self.text.append(data)


def problems(out):
    pages = {path: Page(path.read_text()) for path in out.rglob("*.html")}
    checked = 0
    for path, page in pages.items():
        if path.name in ("404.html", "print.html"):  # the first has absolute links, the second is all the others
            continue
        for link in page.links:
            target = urllib.parse.urlsplit(link)
            if target.scheme or target.netloc or link.startswith("data:"):
                continue
            file = (path.parent / urllib.parse.unquote(target.path)).resolve() if target.path else path
            checked += 1
            if not file.is_file():
                yield f"{path.name} links to {link}, which is not there"
            elif target.fragment and file in pages and target.fragment not in pages[file].anchors:
                yield f"{path.name} links to {link}, which has no such heading"
        if "{{#" in "".join(page.text):
            yield f"{path.name} has an include that was not resolved"
    if checked < LINKS_MIN:
        yield f"only {checked} links were found"
    print(f"book: {len(pages)} pages, {checked} links")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch, "book").resolve()
        command = [pathlib.Path(os.environ["TOOLS"]) / "bin/mdbook", "build", BOOK, "--dest-dir", out]
        done = subprocess.run(command, capture_output=True, text=True)
        said = done.stdout + done.stderr
        assert done.returncode == 0 and "ERROR" not in said and "WARN" not in said, f"mdbook: {said}"
        found = list(problems(out))
    sys.exit("\n".join(f"book: {problem}" for problem in found) if found else 0)


main()
