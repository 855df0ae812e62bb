"""Where the labels of a plot's points stand, so that they hide little."""

from __future__ import annotations

import math

import numpy as np

# Best to the right or below: what lies above, to the left, is mostly better and has its own label.
_DIRECTIONS = (
    (1.0, -0.6),
    (1.0, -1.6),
    (1.0, 0.2),
    (-1.0, -1.4),
    (2.0, -0.3),
    (1.5, 0.6),
    (-0.5, 1.5),
    (0.3, 1.6),
    (0.2, -1.8),
)
_PLACES = [(d * x, d * y) for d in (8, 14, 22, 32, 44, 60, 80, 110) for x, y in _DIRECTIONS]
# What it costs to stand a pixel away, to hide a label, a mark, and a point of a line, to lead the
# line from point to label through a label or mark, and to leave the frame.
_FAR, _LABEL, _MARK, _LINE, _CROSSED, _OUTSIDE = 0.02, 8.0, 2.0, 0.06, 0.8, 16.0
_OWN_RADIUS, _OTHER_RADIUS, _GAP = 7.0, 12.0, 3.0
_STEPS = np.linspace(0, 1, 25)[:, None]


def place_labels(
    points: np.ndarray,
    sizes: np.ndarray,
    *,
    marks: np.ndarray,
    lines: np.ndarray,
    boxes: np.ndarray,
    frame: np.ndarray,
) -> np.ndarray:
    """Return the lower left corners of labels.

    Parameters
    ----------
    points, sizes : numpy.ndarray
        (N, 2): where the labels' points are, and the labels' width and height. All in pixels, from
        left to right and from below to above.
    marks : numpy.ndarray
        (M, 2): points that are not to be hidden, `points` among them.
    lines : numpy.ndarray
        (L, 2): points of lines.
    boxes : numpy.ndarray
        (B, 4): other texts, as left, lower, right, upper.
    frame : numpy.ndarray
        (4,): such a box, which is not to be left.

    Notes
    -----
    Greedy, one label after the other, from the right: each takes the best of 72 places.
    """
    solid = [*map(tuple, boxes.tolist())]
    thin = np.concatenate([lines, lines], axis=1)
    corners = np.zeros_like(points)
    for number in np.argsort(-points[:, 0], kind="stable"):
        point, size = points[number], sizes[number]
        radius = np.where(np.all(marks == point, axis=1), _OWN_RADIUS, _OTHER_RADIUS)[:, None]
        around = np.concatenate([marks - radius, marks + radius], axis=1)
        tight = np.concatenate([marks - _OWN_RADIUS, marks + _OWN_RADIUS], axis=1)
        others = tight[~_overlap(tight, np.concatenate([point, point]))]
        texts = np.array(solid).reshape(-1, 4)
        best = math.inf
        for place in _PLACES:
            anchor = point + place
            corner = anchor - (0 if place[0] > 0 else size[0], size[1] / 2)
            box = np.concatenate([corner - _GAP, corner + size + _GAP])
            cost = _FAR * math.hypot(*place)
            for many, each in ((texts, _LABEL), (around, _MARK), (thin, _LINE)):
                cost += each * int(np.count_nonzero(_overlap(many, box)))
            way = point + _STEPS * (anchor - point)
            for step in np.concatenate([way, way], axis=1):
                for many in (others, texts):
                    cost += _CROSSED * int(np.count_nonzero(_overlap(many, step)))
            inside = np.all(box[:2] >= frame[:2]) and np.all(box[2:] <= frame[2:])
            cost += 0 if inside else _OUTSIDE
            if cost < best:
                best, corners[number], chosen = cost, corner, box
        solid.append(tuple(chosen.tolist()))
    return corners


def _overlap(boxes: np.ndarray, box: np.ndarray) -> np.ndarray:
    inside: np.ndarray = (boxes[:, :2] <= box[2:]) & (boxes[:, 2:] >= box[:2])
    both: np.ndarray = inside[:, 0] & inside[:, 1]
    return both
