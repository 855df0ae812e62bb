from __future__ import annotations

import numpy as np

from tensorcomp.benchmark.label_places import place_labels

FRAME = np.array([0.0, 0.0, 400.0, 300.0])
NONE = np.empty((0, 2))


def boxes(corners: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([corners, corners + sizes], axis=1)


def overlap(a: np.ndarray, b: np.ndarray) -> bool:
    return bool((a[:2] < b[2:]).all() and (b[:2] < a[2:]).all())


def placed(points, sizes, marks=None, lines=NONE, others=None) -> np.ndarray:
    points, sizes = np.array(points, float), np.array(sizes, float)
    corners = place_labels(
        points,
        sizes,
        marks=points if marks is None else np.array(marks, float),
        lines=lines,
        boxes=np.empty((0, 4)) if others is None else np.array(others, float),
        frame=FRAME,
    )
    return boxes(corners, sizes)


def test_a_label_alone_stands_close_to_its_point():
    (box,) = placed([(100, 100)], [(60, 10)])
    assert 100 < box[0] < 120
    assert box[1] < 100 < box[3] + 10


def test_labels_of_crowded_points_do_not_overlap():
    points = [(100 + 5 * n, 100 + 4 * n) for n in range(6)]
    found = placed(points, [(70, 12)] * 6)
    assert not any(overlap(a, b) for i, a in enumerate(found) for b in found[:i])
    marks = [np.array([x - 2, y - 2, x + 2, y + 2], float) for x, y in points]
    assert not any(overlap(box, mark) for box in found for mark in marks)


def test_labels_stay_within_the_frame_and_off_other_texts():
    text = [200, 0, 400, 120]
    found = placed([(390, 290), (195, 60), (5, 5)], [(50, 12)] * 3, others=[text])
    assert (found[:, :2] >= FRAME[:2]).all()
    assert (found[:, 2:] <= FRAME[2:]).all()
    assert not any(overlap(box, np.array(text, float)) for box in found)


def test_a_label_keeps_off_a_line_if_there_is_room():
    line = np.stack([np.linspace(100, 400, 200), np.linspace(95, 90, 200)], axis=1)
    (box,) = placed([(100, 100)], [(60, 10)], lines=line)
    assert not any((box[:2] < p).all() and (p < box[2:]).all() for p in line)


def test_nothing_to_label():
    assert placed(np.empty((0, 2)), np.empty((0, 2)), marks=np.empty((0, 2))).shape == (0, 4)
