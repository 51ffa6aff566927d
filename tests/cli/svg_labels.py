"""Where the labels of a figure that kvsim drew stand, to see that none lies on another or leaves the page."""
import re
import xml.dom.minidom

# Of a letter, in its size: less than in any font a browser may take, so that what overlaps here does so everywhere.
WIDTH, HEIGHT = 0.5, 0.7


def boxes(svg):
    """(text, left, top, right, bottom) of every label."""
    found = []
    for group in xml.dom.minidom.parseString(svg).getElementsByTagName("g"):
        for element in group.childNodes:
            if element.nodeName != "text" or not (text := content(element).strip()):
                continue
            place = re.fullmatch(r"translate\(([-\d.]+),([-\d.]+)\)(?: rotate\((-90|270)(?:\.0+)?\))?",
                                 group.getAttribute("transform"))
            x, y, size = float(place[1]), float(place[2]), float(group.getAttribute("font-size"))
            length = len(text) * size * WIDTH
            left = {"": 0, "start": 0, "middle": -length / 2, "end": -length}[group.getAttribute("text-anchor")]
            top = -size * HEIGHT
            found.append((text, x + top, y - left - length, x, y - left) if place[3]
                         else (text, x + left, y + top, x + left + length, y))
    return found


def content(node):
    return node.data if node.nodeType == node.TEXT_NODE else "".join(map(content, node.childNodes))


def misplaced(svg):
    """Pairs of labels that overlap, and those that leave the page."""
    width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', svg).groups())
    labels, found = boxes(svg), []
    for i, (text, left, top, right, bottom) in enumerate(labels):
        if left < 0 or top < 0 or right > width or bottom > height:
            found.append((text, "leaves the page"))
        for other, *box in labels[:i]:
            if min(right, box[2]) > max(left, box[0]) and min(bottom, box[3]) > max(top, box[1]):
                found.append((text, other))
    return found
