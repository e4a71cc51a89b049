"""A plan as an SVG picture: steps in layers from the entry down, arcs between them. No program but a browser is needed."""

from __future__ import annotations

from collections import deque
from xml.sax.saxutils import escape

from arclog.model.errors import shortened
from arclog.plan.net import Plan, StepPlan

_CHAR, _LINE = 7.2, 16
_PAD, _GAP_X, _GAP_Y, _MARGIN = 12, 36, 56, 20
_LONGEST = 34
_STYLE = (
    "text{font:12px ui-monospace,monospace;fill:#1f2933}.step{fill:#fff;stroke:#52606d;stroke-width:1.2}"
    ".entry{stroke:#0b7285;stroke-width:2.4}.name{font-weight:600}.kind{fill:#52606d}"
    ".arc{fill:none;stroke:#829ab1;stroke-width:1.2}.when{fill:#52606d;font-size:10px}"
)

_MARKER = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="#829ab1"/></marker></defs>'
)


def as_svg(plan: Plan) -> str:
    """The picture as a text."""
    layers = _layers(plan)
    boxes: dict[str, tuple[float, float, float, float]] = {}
    steps = {step.name: step for step in plan.steps}
    y = float(_MARGIN)
    widest = max((sum(_width(steps[name]) + _GAP_X for name in layer) - _GAP_X for layer in layers), default=0.0)
    for layer in layers:
        x = _MARGIN + (widest - sum(_width(steps[name]) + _GAP_X for name in layer) + _GAP_X) / 2
        height = max(_height(steps[name]) for name in layer)
        for name in layer:
            width = _width(steps[name])
            boxes[name] = (x, y, width, _height(steps[name]))
            x += width + _GAP_X
        y += height + _GAP_Y
    size = f'width="{widest + 2 * _MARGIN + 60:.0f}" height="{y - _GAP_Y + _MARGIN:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label={_attribute(plan.name)}>',
        f"<title>{_text(plan.name)}</title><style>{_STYLE}</style>",
        _MARKER,
    ]
    for step in plan.steps:
        parts += [
            _arc(boxes[step.name], boxes[arc.target], _condition(arc.when)) for arc in step.arcs if arc.target in boxes
        ]
    parts += [_box(step, boxes[step.name], entry=step.name == plan.entry) for step in plan.steps]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _layers(plan: Plan) -> list[list[str]]:
    """Return steps by their distance from the entry; unreachable ones come last."""
    steps = {step.name: step for step in plan.steps}
    depth = {plan.entry: 0} if plan.entry in steps else {}
    waiting = deque(depth)
    while waiting:
        name = waiting.popleft()
        for arc in steps[name].arcs:
            if arc.target in steps and arc.target not in depth:
                depth[arc.target] = depth[name] + 1
                waiting.append(arc.target)
    last = max(depth.values(), default=-1) + 1
    layers: dict[int, list[str]] = {}
    for name in steps:
        layers.setdefault(depth.get(name, last), []).append(name)
    return [layers[number] for number in sorted(layers)]


def _lines(step: StepPlan) -> list[str]:
    lines = [_short(f"{task.name}: {task.kind}") for task in step.tasks[:6]]
    if len(step.tasks) > 6:
        lines.append(f"… {len(step.tasks) - 6} more")
    if step.loop is not None:
        lines.insert(0, _short(f"for each {step.loop.iterator} ({step.loop.mode})"))
    return lines


def _width(step: StepPlan) -> float:
    return max(len(_short(step.name)), *(len(line) for line in _lines(step)), 8) * _CHAR + 2 * _PAD


def _height(step: StepPlan) -> float:
    return (len(_lines(step)) + 1) * _LINE + 2 * _PAD - 6


def _box(step: StepPlan, box: tuple[float, float, float, float], *, entry: bool) -> str:
    x, y, width, height = box
    kind = "step entry" if entry else "step"
    rows = [f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6"/>']
    rows.append(f'<text class="name" x="{x + _PAD:.1f}" y="{y + _PAD + 8:.1f}">{_text(_short(step.name))}</text>')
    for number, line in enumerate(_lines(step), 1):
        rows.append(
            f'<text class="kind" x="{x + _PAD:.1f}" y="{y + _PAD + 8 + number * _LINE:.1f}">{_text(line)}</text>'
        )
    return "\n".join(rows)


def _arc(start: tuple[float, float, float, float], other: tuple[float, float, float, float], when: str) -> str:
    x1, y1 = start[0] + start[2] / 2, start[1] + start[3]
    x2, y2 = other[0] + other[2] / 2, other[1]
    if y2 > y1:
        path = f"M{x1:.1f} {y1:.1f}C{x1:.1f} {y1 + 28:.1f} {x2:.1f} {y2 - 28:.1f} {x2:.1f} {y2:.1f}"
        label = ((x1 + x2) / 2 + 4, (y1 + y2) / 2)
    else:
        # Back, or to the side: around the right of both.
        x1, y1 = start[0] + start[2], start[1] + start[3] / 2
        x2, y2 = other[0] + other[2], other[1] + other[3] / 2
        out = max(x1, x2) + 32
        path = f"M{x1:.1f} {y1:.1f}C{out:.1f} {y1:.1f} {out:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
        label = (out - 8, (y1 + y2) / 2)
    drawn = f'<path class="arc" d="{path}" marker-end="url(#tip)"/>'
    return drawn + (f'<text class="when" x="{label[0]:.1f}" y="{label[1]:.1f}">{_text(when)}</text>' if when else "")


def _condition(when: object) -> str:
    return "" if when is None else _short(str(when).strip().removeprefix("{{").removesuffix("}}").strip())


def _short(text: str) -> str:
    return shortened(text, _LONGEST)


def _text(text: str) -> str:
    return escape("".join(char if char.isprintable() else " " for char in text))


def _attribute(text: str) -> str:
    return '"' + _text(text).replace('"', "&quot;") + '"'
