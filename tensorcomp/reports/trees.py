"""Make elements of HTML and SVG, which hold names as text."""

from __future__ import annotations

from xml.etree.ElementTree import Element


def element(tag: str, *children: Element | str, classes: str = "", **attributes: str) -> Element:
    """Return an element with children, a text before them, and attributes.

    An underscore stands for the hyphen in an attribute's name.

    Examples
    --------
    >>> from xml.etree.ElementTree import tostring
    >>> tostring(element("p", "a < b", element("br"), classes="note"), method="html")
    b'<p class="note">a &lt; b<br></p>'
    """
    made = Element(tag, {"class": classes} if classes else {})
    made.attrib |= {name.replace("_", "-"): value for name, value in attributes.items()}
    for child in children:
        if isinstance(child, str):
            made.text = child
        else:
            made.append(child)
    return made
