"""docs/benchmarks_MAKER.svg: bus bandwidth of all-reduce against the size, a panel for each number of
ranks, axes logarithmic."""
import math
from html import escape

from results import PEERS

SERIES = [("floor", "#888888", "4 3"), ("ddp shared", "#0b6e3b", ""), ("ddp user", "#1f6fb4", ""),
          ("best peer", "#d1661c", ""), ("Gloo", "#a0329b", ""), ("PyTorch", "#777733", "")]
WIDTH, HEIGHT, LEFT, TOP, GAP = 430, 300, 60, 70, 60


def points_of(results, ranks, name):
    points = []
    for size in results.sizes("all_reduce", ranks):
        key = ("all_reduce", ranks, "float32", size)
        time = results.floor(key) if name == "floor" else results.time(
            key, PEERS if name == "best peer" else name)
        if time:
            points.append((size, 2 * (ranks - 1) / ranks * size / time / 1e3))
    return points


def text(x, y, words, anchor="middle"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def panel(left, title, series):
    everything = [point for points in series.values() for point in points]
    low_x = math.floor(min(math.log(x, 4) for x, _ in everything) + 1e-9)
    high_x = max(low_x + 1, math.ceil(max(math.log(x, 4) for x, _ in everything) - 1e-9))
    low_y = math.floor(min(math.log10(y) for _, y in everything))
    high_y = max(low_y + 1, math.ceil(max(math.log10(y) for _, y in everything)))

    def at(x, y):
        return (left + (math.log(x, 4) - low_x) / (high_x - low_x) * WIDTH,
                TOP + HEIGHT - (math.log10(y) - low_y) / (high_y - low_y) * HEIGHT)

    lines = [text(left, TOP - 12, title, "start")]
    for step in range(low_x, high_x + 1):
        x, _ = at(4.0**step, 10.0**low_y)
        lines.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{TOP + HEIGHT}" stroke="#ddd"/>')
        if (step - low_x) % 2 == 0:
            size, unit = 4**step, 0
            while size >= 1024:
                size, unit = size // 1024, unit + 1
            lines.append(text(x, TOP + HEIGHT + 16, f"{size}{['', 'K', 'M', 'G'][unit]}"))
    for step in range(low_y, high_y + 1):
        _, y = at(4.0**low_x, 10.0**step)
        lines.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + WIDTH}" y2="{y:.1f}" stroke="#ddd"/>')
        lines.append(text(left - 6, y + 4, f"{10.0**step:g}", "end"))
    lines.append(text(left + WIDTH, TOP + HEIGHT + 34, "bytes", "end"))
    for name, color, dash in SERIES:
        places = [at(x, y) for x, y in series.get(name, [])]
        if not places:
            continue
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        lines.append(f'<polyline fill="none" stroke="{color}" stroke-width="2" '
                     f'stroke-dasharray="{dash}" points="{path}"/>')
        lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{color}"/>' for x, y in places]
    return lines


def write_chart(results, path):
    panels = []
    for ranks in (2, 4, 8):
        series = {name: points_of(results, ranks, name) for name, _, _ in SERIES}
        if any(series.values()):
            panels.append((ranks, series))
    width = max(820, 20 + len(panels) * (WIDTH + LEFT + 20))
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{TOP + HEIGHT + GAP}" '
             'font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="white"/>',
             text(LEFT, 20, "all_reduce, float32 sum: bus bandwidth in GB/s; "
                  f"{results.facts['cpu']}, {results.facts['cores']} cores", "start")]
    x = LEFT
    for name, color, dash in SERIES:
        lines.append(f'<line x1="{x}" y1="36" x2="{x + 24}" y2="36" stroke="{color}" '
                     f'stroke-width="2" stroke-dasharray="{dash}"/>')
        lines.append(text(x + 30, 40, name, "start"))
        x += 120
    for index, (ranks, series) in enumerate(panels):
        lines += panel(LEFT + index * (WIDTH + LEFT + 20), f"{ranks} ranks", series)
    with open(path, "w") as file:
        file.write("\n".join(lines + ["</svg>"]) + "\n")
