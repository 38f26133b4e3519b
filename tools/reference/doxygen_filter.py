#!/usr/bin/env python3
"""doxygen_filter.py HEADER: a public header as Doxygen wants it, on stdout. Its comments are the house's: // above a declaration, or behind
it, and above a paragraph of declarations for all of it; the one at the head of the file is of the file, too, and of the class that it
names as "Name:", or of the first type, where these have none. An indented block in a comment is code, `x` is code in a line."""
import html
import re
import sys

SCOPE = re.compile(r"(?:typedef\s+)?(?:template\s*<.*>\s*)?(?:inline\s+)?(?:class|struct|union|enum|namespace)\b|extern\s*$")
BY_THE_COMPILER = re.compile(r"=\s*(?:default|delete)\s*;|\b(\w+)\(\1&&\)|operator=\(\w+&&\)|^(?:\w+\s+)*~\w+\(")
# What the language wants of a class: iterators, loops, streams.
CONVENTIONAL = {
    r"\boperator(?:\*|->|\+\+|==)\(|^using (?:value_type|difference_type|iterator_concept|iterator_category|reference|pointer) =":
        "As every iterator's.",
    r"^(?:\w+ )*(?:auto|Iterator|std::default_sentinel_t) (?:begin|end)\(": "For a range-based for loop.",
    r"\boperator<<\(": "What to_string gives.",
    r"^using (?:\w+::)+\w+;": "As its base's.",
}
COMMENT = re.compile(r"^\s*//(?!/) ?(.*)$")
TRAILING = re.compile(r"^(.*[^\s/].*?)\s+// (.*)$")


def escaped(text):
    parts = re.split(r"`([^`]*)`", text)
    for i, part in enumerate(parts):
        quoted = re.sub(r"([\\@%#])", r"\\\1", html.escape(part, quote=False))
        parts[i] = f"<code>{quoted}</code>" if i % 2 else quoted
    return "".join(parts)


def documented(lines):
    """Doxygen's lines for a comment."""
    result, is_code = [], False
    for line in lines:
        wants_code = line.startswith("    ") or (is_code and line == "")
        if wants_code != is_code:
            result.append("@code{.cpp}" if wants_code else "@endcode")
            is_code = wants_code
        result.append(line[4:] if is_code else escaped(line))
    if is_code:
        result.append("@endcode")
    return [f"/// {line}".rstrip() for line in result]


def code_of(line):
    """Without strings and comments."""
    return re.sub(r"//.*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])'", "", line).strip()


class Header:
    def __init__(self, text):
        self.lines = text.split("\n")
        self.out = []
        self.scopes = []  # of each open brace: whether declarations are in it, and whether it is an enumeration
        self.depth = 0  # of parentheses in the statement
        self.statement = ""  # what is read of it
        self.comment = []  # that stands above
        self.shared = []  # what the paragraph's last declaration was documented by
        self.head, self.head_name = [], None
        self.has_type = False

    def take_head(self):
        count = 0
        while count < len(self.lines) and COMMENT.match(self.lines[count]):
            self.head.append(COMMENT.match(self.lines[count]).group(1))
            count += 1
        name = re.match(r"(\w+): ", self.head[0]) if self.head else None
        self.head_name = name and name.group(1)
        self.out += ["/// @file"] + documented(self.head)
        self.lines = self.lines[count:]

    def is_declaring(self):
        return all(scope != "body" for scope in self.scopes)

    def begins(self, line, next_line):
        """A declaration begins with this line: what it is documented by."""
        code = code_of(line)
        if re.fullmatch(r"template\s*<.*>", code):
            code += " " + code_of(next_line)
        if re.match(r"(public|private|protected):|#|namespace\b|using namespace|friend (class|struct)|extern \"C\"|[{}]|static_assert|template class", code):
            self.comment = []
            return
        trailing = TRAILING.match(line)
        is_first_type = not self.has_type and not self.head_name and self.head and re.match(r"(?:typedef )?(?:struct|class|enum)\b.*\{", code)
        named = re.search(r"\bconcept (\w+) =", code) or re.search(r"\b(?:class|struct)\s+(?:\[\[\w+\]\]\s*)?(?:DDP_API\s+)?(\w+)\s*(?:final\s*)?(?::[^:]|\{)", code)
        if self.comment:
            self.shared = documented(self.comment)
        elif trailing and (code.endswith((";", ",", "}")) or self.scopes[-1:] == ["enum"]):
            return
        elif named and named.group(1) == self.head_name:
            text = re.sub(r"^\w+: ", "", self.head[0])
            self.shared = documented([text[:1].upper() + text[1:], *self.head[1:]])
        elif is_first_type and not self.shared:
            self.shared = documented(self.head)
        elif not self.shared and BY_THE_COMPILER.search(code):
            self.out.append("/// As the language has it.")
            return
        elif not self.shared and any(re.search(pattern, code) for pattern in CONVENTIONAL):
            self.out += [f"/// {text}" for pattern, text in CONVENTIONAL.items() if re.search(pattern, code)][:1]
            return
        if re.match(r"(?:typedef )?(?:struct|class|enum)\b.*\{", code):
            self.has_type = True
        self.out += self.shared
        self.comment = []

    def close(self, code):
        """What a line of code opens and ends."""
        for place, sign in enumerate(code):
            self.depth += {"(": 1, ")": -1}.get(sign, 0)
            if sign == "{":
                kind = "body"
                if self.is_declaring() and self.depth == 0:
                    text = self.statement + code[:place]
                    if SCOPE.match(re.sub(r"^(?:\[\[\w+\]\]\s*)+", "", text.strip())) and not re.search(r"\)\s*(?:const\s*)?$", text):
                        kind = "enum" if re.search(r"\benum\b", text) else "scope"
                self.scopes.append(kind)
            elif sign == "}" and self.scopes:
                self.scopes.pop()
        self.statement += code + " "
        ends_item = self.scopes[-1:] == ["enum"] and code.endswith(",")
        ends_access = re.search(r"^(public|private|protected):$", code)
        if self.depth == 0 and (code.endswith((";", "{", "}")) or ends_item or ends_access or code.startswith("#")):
            self.statement = ""

    def convert(self):
        self.take_head()
        continues = False  # of a preprocessor's line
        for line, next_line in zip(self.lines, [*self.lines[1:], ""]):
            comment = COMMENT.match(line)
            code = code_of(line)
            if continues or line.lstrip().startswith("#"):
                if not continues and line.startswith("#define"):
                    self.shared = documented(self.comment) if self.comment else self.shared
                    self.out += self.shared
                    self.comment = []
                continues = line.endswith("\\")
                self.out.append(line)
            elif comment and self.is_declaring() and not self.statement:
                self.comment.append(comment.group(1))
            elif not line.strip():
                self.comment, self.shared = [], []
                self.out.append(line)
            elif not code:
                self.out.append(line)
            else:
                if self.is_declaring() and not self.statement:
                    self.begins(line, next_line)
                trailing = TRAILING.match(line) if self.is_declaring() else None
                self.close(code)
                # A struct's is that of its fields, too.
                if code.endswith("{") and self.scopes[-1] == "scope" and re.match(r"(?:template\s*<.*>\s*)?class\b", code):
                    self.shared = []
                if trailing and not self.statement and self.is_declaring() and not code.endswith("{"):
                    self.out.append(f"{trailing.group(1)} ///< {escaped(trailing.group(2))}")
                else:
                    self.out.append(line)
        return "\n".join(self.out)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        print(Header(header.read()).convert())
