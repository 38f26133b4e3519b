#!/usr/bin/env python3
"""html_pages.py ROOT OUTPUT: the project's pages as HTML beside Doxygen's, which lie in OUTPUT/reference with OUTPUT/reference.tag, and whether
each link of them leads somewhere. A file of the project that a page names becomes a page, too."""
import html
import html.parser
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

import markdown

from anchors import Anchors

PAGE = """<!DOCTYPE html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="{root}style.css">
</head>
<body>
<header><a href="{root}index.html">ddp</a><a href="{root}docs/headers.html">Headers</a><a href="{root}reference/index.html">Reference</a><a
href="{root}CHANGELOG.html">Changes</a></header>
{body}
</body>
</html>
"""


class Site:
    def __init__(self, root, output):
        self.root, self.output = pathlib.Path(root).resolve(), pathlib.Path(output)
        self.files = self.list_files()
        self.pages = sorted(name for name in self.files if name.endswith(".md"))
        self.sources, self.folders = set(), set()  # that pages name
        self.lost = []  # links to what is not in the project
        tags = xml.etree.ElementTree.parse(self.output / "reference.tag").getroot()
        self.headers = {}
        for file in tags.findall("compound[@kind='file']"):
            path = os.path.relpath(file.findtext("path", "") + file.findtext("name"), self.root)
            self.headers[path] = "reference/" + file.findtext("filename")

    def list_files(self):
        if not (self.root / ".git").exists():  # of a release's tarball
            found = (path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file())
            return {name for name in found if not name.startswith("build")}
        command = ["git", "-C", str(self.root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        return {name for name in listed.decode().split("\0") if name}

    def names_in(self, folder):
        return sorted({name[len(folder) + 1:].split("/")[0] for name in self.files if name.startswith(folder + "/")})

    def place_of(self, name):
        """Where a file of the project is in the site; None: nowhere."""
        if name == "README.md":
            return "index.html"
        if name.endswith(".md"):
            return name[:-3] + ".html"
        if name in self.headers:
            return self.headers[name]
        if name.endswith((".svg", ".png")):
            return name
        if name in self.files:
            return name + ".html"
        names = self.names_in(name)
        if "README.md" in names:
            return self.place_of(name + "/README.md")
        return name + "/index.html" if names else None

    def link(self, page, target):
        """What a page's link becomes; None: it leads nowhere, and is noted."""
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            return target
        path, _, anchor = target.partition("#")
        name = os.path.normpath(os.path.join(os.path.dirname(page), path))
        place = self.place_of(name)
        if place is None:
            self.lost.append(f"{page}: {target} leads nowhere")
            return None
        if name not in self.files:
            self.folders.add(name)
        elif not name.endswith(".md") and name not in self.headers:
            self.sources.add(name)
        here = os.path.dirname(self.place_of(page)) or "."
        return os.path.relpath(place, here) + ("#" + anchor if anchor else "")

    def write(self, name, title, body, language="en"):
        self.write_at(self.place_of(name), title, body, language)

    def write_at(self, place, title, body, language="en"):
        file = self.output / place
        file.parent.mkdir(parents=True, exist_ok=True)
        root = "../" * place.count("/")
        file.write_text(PAGE.format(language=language, title=html.escape(title), root=root, body=body), encoding="utf-8")

    def write_page(self, name):
        text = (self.root / name).read_text(encoding="utf-8")
        anchors = Anchors()
        body = markdown.markdown(text, extensions=["tables", "fenced_code", "toc", "sane_lists"],
                                 extension_configs={"toc": {"slugify": lambda title, _: anchors.of(title)}}, output_format="html")
        body = re.sub(r"<a href=\"([^\"]*)\">(.*?)</a>", lambda found: self.anchor(name, *found.groups()), body, flags=re.DOTALL)
        body = re.sub(r"(<img [^>]*src=\")([^\"]*)", lambda found: found[1] + (self.link(name, found[2]) or found[2]), body)
        body = body.replace("<table>", "<div class=\"table\"><table>").replace("</table>", "</table></div>")
        title = re.search(r"^# (.*)$", text, re.MULTILINE)
        self.write(name, title[1] if title else name, body, "zh" if name.endswith(".zh.md") else "en")

    def anchor(self, page, target, text):
        place = self.link(page, html.unescape(target))
        return text if place is None else f"<a href=\"{html.escape(place)}\">{text}</a>"

    def make(self):
        for name in self.pages:
            self.write_page(name)
        for name in sorted(self.folders):
            if self.place_of(name) == name + "/index.html":
                items = "".join(f"<li>{html.escape(entry)}</li>\n" for entry in self.names_in(name))
                self.write_at(name + "/index.html", name, f"<h1>{html.escape(name)}</h1>\n<ul>{items}</ul>")
        for name in sorted(self.sources):
            if name.endswith((".svg", ".png")):
                (self.output / name).write_bytes((self.root / name).read_bytes())
                continue
            text = (self.root / name).read_bytes().decode(errors="replace")
            self.write(name, name, f"<h1>{html.escape(name)}</h1>\n<pre>{html.escape(text)}</pre>")
        (self.output / "style.css").write_bytes((self.root / "tools/reference/style.css").read_bytes())


class Links(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.targets += [given[name] for name in ("href", "src") if given.get(name)]
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}


def faults_of(output):
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in sorted(output.rglob("*.html"))}
    for path, links in pages.items():
        for target in links.targets:
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            place = pathlib.Path(os.path.normpath(path.parent / file)) if file else path
            if not place.is_file():
                yield f"{path.relative_to(output)}: {target} leads nowhere"
            # Doxygen names places of its own that are empty.
            elif anchor and place in pages and anchor not in pages[place].anchors and path.parent.name != "reference":
                yield f"{path.relative_to(output)}: no such place as {target}"


def main(root, output):
    site = Site(root, output)
    site.make()
    faults = site.lost + list(faults_of(pathlib.Path(output)))
    for fault in faults:
        print(f"html_pages.py: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
