"""How does a test read a page: its elements, its texts, its tables, as a browser without a network would?"""

from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final

_VOID: Final = frozenset(("meta", "link", "img", "br", "hr", "input", "base"))


@dataclass
class Element:
    """One element: its text is that of all below it."""

    tag: str
    attributes: dict[str, str]
    children: list["Element"] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def all(self, tag: str, **attributes: str) -> list["Element"]:
        """Elements below it, in their order, with this tag and these attributes."""
        found = []
        for child in self.children:
            if child.tag == tag and all(child.attributes.get(name) == value for name, value in attributes.items()):
                found.append(child)
            found += child.all(tag, **attributes)
        return found

    def where(self, told: Callable[["Element"], bool]) -> list["Element"]:
        """Elements below it of which this holds."""
        return [one for child in self.children for one in ([child] if told(child) else []) + child.where(told)]

    @property
    def text(self) -> str:
        """What a reader sees of it."""
        return "".join(self.words)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(made)
        if tag not in _VOID:
            self.open.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for one in self.open:
            one.words.append(data)


def parse(page: str) -> Element:
    """The page; every element must be closed by its own end."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert len(reader.open) == 1, [one.tag for one in reader.open]
    return reader.root


def table(page: Element, named: str) -> list[dict[str, str]]:
    """The rows of the table with this name, by column."""
    found = page.all("table", **{"aria-label": named})
    assert len(found) == 1, [one.attributes.get("aria-label") for one in page.all("table")]
    columns = [one.text for one in found[0].all("th")]
    return [
        dict(zip(columns, [cell.text for cell in row.all("td")], strict=True))
        for row in found[0].all("tbody")[0].all("tr")
    ]
