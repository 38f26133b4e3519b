"""Reading of Markdown pages: sections, blocks of code, tables, words in backquotes, links."""
import re
from dataclasses import dataclass, field


@dataclass
class Block:
    line: int  # of the opening fence
    language: str  # all that stands behind the fence: "cpp", "cpp libtorch"
    code: str
    section: str  # the heading of the second level that it is below


@dataclass
class Section:
    line: int
    level: int
    title: str
    lines: list = field(default_factory=list)  # (number, text), without blocks of code
    blocks: list = field(default_factory=list)

    def text(self):
        return "\n".join(text for _, text in self.lines)


def read_page(path):
    """The page's sections in order; what precedes the first heading is one of level 0."""
    sections = [Section(1, 0, "")]
    chapter = ""
    block = None
    with open(path, encoding="utf-8") as page:
        for number, text in enumerate(page.read().split("\n"), 1):
            heading = re.match(r"(#+) (.*)", text)
            if block is not None:
                if text.rstrip() == "```":
                    block = None
                else:
                    block.code += text + "\n"
            elif text.startswith("```"):
                block = Block(number, text[3:].strip(), "", chapter)
                sections[-1].blocks.append(block)
            elif heading:
                sections.append(Section(number, len(heading[1]), heading[2]))
                chapter = heading[2] if len(heading[1]) <= 2 else chapter
            else:
                sections[-1].lines.append((number, text))
    if block is not None:
        raise SystemExit(f"{path}:{block.line}: this block of code has no end")
    return sections


def blocks_of(path):
    return [block for section in read_page(path) for block in section.blocks]


def names_in(text):
    """Each `name` in backquotes; it may go on in the next line of a paragraph."""
    return {" ".join(name.split()) for paragraph in re.split(r"\n\s*\n", text)
            for name in re.findall(r"`([^`]+)`", paragraph)}


def links_in(text):
    """The target of each link to elsewhere; a translated page counts as the page itself."""
    targets = re.findall(r"\]\(([^)]+)\)", text)
    return {target.replace(".zh.md", ".md") for target in targets if not target.startswith("#")}


def lost_anchors(sections):
    """Links within the page to headings that it has not."""
    slugs = {re.sub(r"[^\w\- ]", "", section.title.lower()).replace(" ", "-")
             for section in sections}
    return [(number, anchor) for section in sections for number, text in section.lines
            for anchor in re.findall(r"\]\(#([^)]+)\)", text) if anchor not in slugs]


def tables_in(section):
    """A list of tables, each a list of (line, row), without the line below the head."""
    tables, last = [], 0
    for number, text in section.lines:
        if not text.startswith("|"):
            continue
        if number != last + 1:
            tables.append([])
        last = number
        if not re.fullmatch(r"[|\s:-]+", text):
            tables[-1].append((number, text))
    return tables


def cells_of(row):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
