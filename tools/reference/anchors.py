"""What GitHub calls the headings of a page."""
import collections
import re


class Anchors:
    """Of one page: the second heading of a name gets -1."""

    def __init__(self) -> None:
        self._times = collections.Counter()

    def of(self, title: str) -> str:
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)  # a link's text
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        number = self._times[slug]
        self._times[slug] += 1
        return f"{slug}-{number}" if number else slug
