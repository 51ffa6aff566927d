// Tables sort by a click or a key on their headings, long ones can be filtered, a button turns the theme; the first screen and all figures
// are drawn from the data of the page.
"use strict";

for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const headings = [...table.tHead.rows[0].cells];

  const keyOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.order === undefined ? cell.textContent : Number(cell.dataset.order);
  };
  // Numbers before texts; texts as people order them: a2 before a10.
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return a.localeCompare(b, "en", { numeric: true });
  };
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      const descending = heading.getAttribute("aria-sort") === "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const rows = [...body.rows].map((row) => ({ row, key: keyOf(row, column) }));
      rows.sort((a, b) => (descending ? compare(b.key, a.key) : compare(a.key, b.key)));
      body.append(...rows.map((each) => each.row));
    });
  });

  if (body.rows.length >= 15) {
    const filter = document.createElement("input");
    filter.type = "search";
    filter.className = "filter";
    filter.placeholder = "Show rows with \u2026";
    filter.setAttribute("aria-label", "Show only rows that contain this text");
    filter.addEventListener("input", () => {
      const wanted = filter.value.toLowerCase();
      for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
    table.parentElement.before(filter);
  }
}

// On paper nothing can be unfolded: the numbers behind findings are printed.
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll(".findings details")) folded.open = true;
});

const theme = document.getElementById("theme");
const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark";
const nameTheme = () => { theme.textContent = isDark() ? "Light theme" : "Dark theme"; };
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", nameTheme);
nameTheme();
theme.hidden = false;

// ---- Live figures: one renderer for all; numbers are those of figures/*.csv and tables/*.csv ----

const SVG = "http://www.w3.org/2000/svg";
const drawn = (name, attributes, ...children) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const made = (name, text = "", properties = {}) => Object.assign(document.createElement(name), { textContent: text }, properties);
const colourOf = (colours) => colours[isDark() ? 1 : 0];
const shown = (value, percent) => {
  const number = percent ? 100 * value : value;
  return `${Number(number.toPrecision(Math.abs(number) >= 1000 ? 6 : 4))}${percent ? " %" : ""}`;
};
const intervalText = (low, high, percent) => (low == null || high == null ? "" : ` (${shown(low, percent)} to ${shown(high, percent)})`);

// Circle, square, triangles up and down, diamond, pentagon: as gnuplot draws them.
const SHAPES = [null, "M-4-4H4V4H-4Z", "M0-5L5 4H-5Z", "M0 5L5-4H-5Z", "M0-5.5L5 0L0 5.5L-5 0Z", "M0-5L4.8-1.5L3 4.2H-3L-4.8-1.5Z"];
function mark(x, y, [shape, open] = [0, false], colour, size = 1) {
  const paint = { fill: open ? "var(--page)" : colour, stroke: colour, "stroke-width": 1.4, transform: `translate(${x} ${y}) scale(${size})` };
  return SHAPES[shape] ? drawn("path", { ...paint, d: SHAPES[shape] }) : drawn("circle", { ...paint, r: 4.3 });
}
function swatch({ colours, mark: its, weight }) {
  const svg = drawn("svg", { width: 26, height: 12, viewBox: "0 0 26 12", "aria-hidden": "true" });
  const colour = weight === "bound" ? "var(--text)" : weight === "faint" ? "var(--line)" : colourOf(colours);
  svg.append(drawn("path", { d: "M1 6H25", stroke: colour, "stroke-width": 2, "stroke-dasharray": its?.[2] || weight === "bound" ? "5 3" : "none" }));
  if (its && weight !== "faint") svg.append(mark(13, 6, its, colour));
  return svg;
}

function niceTicks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((factor) => raw <= factor * power * 1.000001) * power;
  return Array.from({ length: Math.floor(high / step + 1e-9) - Math.ceil(low / step - 1e-9) + 1 }, (_, i) => (Math.ceil(low / step - 1e-9) + i) * step);
}
function scaleOf(axis, values, from, to, zoom) {
  const all = values.filter((value) => value != null);
  if (axis.line != null) all.push(axis.line);
  let low = axis.low ?? Math.min(...all), high = axis.high ?? Math.max(...all);
  const log = axis.log && low > 0;
  if (!(low < high)) [low, high] = log ? [low / 2, high * 2] : [low - 1, high + 1];
  if (axis.names.length) [low, high] = [-0.5, axis.names.length - 0.5];
  else if (log) [low, high] = [low / (high / low) ** 0.04, high * (high / low) ** 0.04];
  else {
    const room = 0.04 * (high - low);
    [low, high] = [axis.low ?? low - room, axis.high ?? high + room];
  }
  if (zoom) [low, high] = zoom;
  const f = log ? Math.log : Number;
  const at = (value) => from + (f(value) - f(low)) / (f(high) - f(low)) * (to - from);
  const back = (place) => { const v = f(low) + (place - from) / (to - from) * (f(high) - f(low)); return log ? Math.exp(v) : v; };
  const most = Math.max(2, Math.abs(to - from) / 60);
  let ticks = axis.names.length ? axis.names.map((_, i) => i).filter((i) => i % Math.ceil(axis.names.length / Math.max(1, Math.abs(to - from) / 14)) === 0)
    : axis.ticks.length > 1 ? axis.ticks : [];
  if (!ticks.length && log)
    for (let p = 10 ** Math.floor(Math.log10(low)); p <= high; p *= 10) ticks.push(...[1, 2, 5].map((m) => m * p));
  if (!axis.names.length) ticks = ticks.filter((v) => v >= low - 1e-12 && v <= high);
  if (ticks.length < 2 && !axis.names.length) ticks = niceTicks(low, high, most);
  if (log) ticks = ticks.filter((v, i) => i === 0 || ticks.length <= most || i % Math.ceil(ticks.length / most) === 0);
  return { at, back, ticks, low, high, text: (v) => (axis.names.length ? axis.names[Math.round(v)] : shown(v, axis.percent)) };
}

const tip = made("div", "", { id: "tip", hidden: true });
document.body.append(tip);
function hoverable(element, text, data) {
  Object.assign(element.dataset, data);
  element.setAttribute("aria-label", text);
  element.addEventListener("pointerenter", (event) => {
    tip.textContent = text;
    tip.hidden = false;
    tip.style.left = `${Math.min(event.pageX + 12, document.documentElement.clientWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${event.pageY + 14}px`;
  });
  element.addEventListener("pointerleave", () => { tip.hidden = true; });
  return element;
}

// A chart, a heat map or a timeline in an SVG as wide as there is room; a drag zooms into a chart.
function drawPanel(panel, width, hidden, zoomed, redraw) {
  const heat = panel.rows, time = panel.bars;
  const axes = panel.flipped ? { across: panel.y, up: panel.x } : { across: panel.x, up: panel.y };
  const series = (panel.series ?? []).filter(({ label, group, points }) => points.length && !hidden.has(group || label));
  const values = { x: [], y: [] };
  for (const { points } of series) for (const [x, y, low, high] of points) { values.x.push(x); values.y.push(y, low, high); }
  if (heat) {
    const ends = (axis, n) => (axis.names.length ? [] : axis.low != null && n > 1 ? [axis.low - (axis.high - axis.low) / (n - 1) / 2, axis.high + (axis.high - axis.low) / (n - 1) / 2] : [-0.5, n - 0.5]);
    values.x = ends(panel.x, heat[0].length); values.y = ends(panel.y, heat.length);
  }
  for (const [y, begin, end,, height] of time ?? []) { values.x.push(begin, end); values.y.push(y - height / 2, y + height / 2); }
  const plain = heat || time ? (axis, own) => ({ ...axis, log: false, low: own[0] == null ? null : Math.min(...own), high: own[0] == null ? null : Math.max(...own) }) : (axis) => axis;
  const names = axes.up.names, left = names.length ? Math.min(width * 0.4, 14 + 6.6 * Math.max(...names.map((n) => n.length))) : 64;
  const height = names.length ? Math.max(90, names.length * 16) : Math.min(300, Math.max(180, width * 0.5)), bottom = 44, top = 24;
  const own = panel.flipped ? { x: values.y, y: values.x } : values;
  const x = scaleOf(plain(axes.across, own.x), own.x, left, width - 12, zoomed.x);
  const reversed = heat || panel.flipped || (time && names.length);
  const y = scaleOf(plain(axes.up, own.y), own.y, reversed ? top : top + height, reversed ? top + height : top, zoomed.y);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${top + height + bottom}`, width, height: top + height + bottom, role: "img", "aria-label": panel.title || axes.up.label });
  const clip = `clip${drawPanel.next = (drawPanel.next ?? 0) + 1}`;
  svg.append(drawn("clipPath", { id: clip }, drawn("rect", { x: left - 6, y: top - 6, width: width - left, height: height + 12 })));
  const write = (text, at, more = {}) => svg.append(drawn("text", { ...at, fill: "var(--quiet)", "font-size": 12, ...more }, text));
  write(panel.title, { x: left, y: 14 }, { fill: "var(--text)", "font-weight": 600 });
  const room = Math.floor(left / 6.6) - 1;
  for (const v of y.ticks) {
    const text = y.text(v) ?? "";
    write(text.length > room && names.length ? `${text.slice(0, room - 1)}…` : text, { x: left - 8, y: y.at(v) + 4, "text-anchor": "end" });
    if (!heat) svg.append(drawn("path", { d: `M${left} ${y.at(v)}H${width - 12}`, stroke: "var(--line)", "stroke-width": 0.5 }));
  }
  let last = -1e9;
  for (const v of x.ticks) {
    const text = String(x.text(v) ?? "").slice(0, 12), half = text.length * 3.4;
    if (x.at(v) - half < last + 6) continue;
    last = x.at(v) + half;
    write(text, { x: x.at(v), y: top + height + 16, "text-anchor": "middle" });
  }
  write(axes.across.label, { x: (left + width) / 2, y: top + height + 36, "text-anchor": "middle" });
  if (!names.length) svg.append(drawn("text", { transform: `translate(12 ${top + height / 2}) rotate(-90)`, "text-anchor": "middle", fill: "var(--quiet)", "font-size": 12 }, axes.up.label));
  const plot = drawn("g", { "clip-path": `url(#${clip})` });
  svg.append(plot);
  for (const [axis, scale, vertical] of [[axes.across, x, true], [axes.up, y, false]]) {
    if (axis.line == null) continue;
    plot.append(drawn("path", { d: vertical ? `M${scale.at(axis.line)} ${top}V${top + height}` : `M${left} ${scale.at(axis.line)}H${width}`, stroke: "var(--quiet)", "stroke-width": 0.6 }));
    write(axis.said, vertical ? { x: scale.at(axis.line) - 4, y: top + height - 4, "text-anchor": "end" } : { x: width - 14, y: scale.at(axis.line) + 14, "text-anchor": "end" });
  }
  if (heat) {
    const cells = heat.flat().filter((v) => v != null), most = Math.max(...cells.map(panel.diverging ? Math.abs : Number)), least = panel.diverging ? -most : Math.min(...cells);
    const share = (v) => (panel.log && least > 0 ? Math.log(v / least) / Math.log(most / least) : (v - least) / (most - least || 1));
    const wide = (width - 12 - left) / heat[0].length, high = height / heat.length;
    heat.forEach((row, r) => row.forEach((v, c) => {
      if (v == null) return;
      const rect = drawn("rect", { x: left + c * wide, y: top + r * high, width: wide + 0.3, height: high + 0.3, fill: ramp(share(v), panel.diverging) });
      const name = (axis, i, n) => (axis.names.length ? axis.names[i] : shown(axis.low != null && n > 1 ? axis.low + i * (axis.high - axis.low) / (n - 1) : i));
      plot.append(hoverable(rect, `${name(panel.y, r, heat.length)}, ${name(panel.x, c, row.length)}: ${shown(v, panel.percent)} ${panel.unit}`, { value: v }));
    }));
  }
  for (const [at, begin, end, colour, tall] of time ?? []) {
    const half = tall * (names.length ? 0.36 : 0.5), [one, two] = [y.at(at - half), y.at(at + half)];
    const rect = drawn("rect", { x: x.at(begin), y: Math.min(one, two), width: Math.max(0.5, x.at(end) - x.at(begin)), height: Math.abs(two - one), fill: colourOf(panel.colours[colour].slice(1)) });
    plot.append(hoverable(rect, `${panel.colours[colour][0]}: ${shown(begin)} to ${shown(end)}`, { begin, end }));
  }
  const order = { faint: 0, bound: 1, plain: 2 }, layers = [...series].sort((a, b) => order[a.weight] - order[b.weight]);
  const banded = layers.filter(({ weight, points }) => weight === "plain" && points.some((p) => p[2] != null));
  for (const one of layers) {
    const colour = one.weight === "bound" ? "var(--text)" : one.weight === "faint" ? "var(--line)" : colourOf(one.colours);
    const moved = banded.length > 2 && banded.includes(one) && !one.dots && !panel.flipped ? 3 * (banded.indexOf(one) - (banded.length - 1) / 2) : 0;
    const place = ([px, py]) => (panel.flipped ? [x.at(py), y.at(px)] : [x.at(px) + moved, y.at(py)]);
    const points = one.points.filter((p) => p[1] != null), group = drawn("g", {});
    if (!one.dots && points.length > 1)
      group.append(drawn("path", { d: points.map((p, i) => `${i ? "L" : "M"}${place(p).join(" ")}`).join(""), fill: "none", stroke: colour, "stroke-width": one.weight === "faint" ? 1 : 1.8, "stroke-dasharray": one.mark?.[2] || one.weight === "bound" ? "7 4" : "none" }));
    for (const p of points) {
      const [px, py] = place(p), [, , low, high] = p;
      if (low != null && high != null && one.weight !== "faint")
        group.append(drawn("path", { d: panel.flipped ? `M${x.at(low)} ${py}H${x.at(high)}` : `M${px} ${y.at(low)}V${y.at(high)}`, stroke: colour, "stroke-width": 1, opacity: 0.75 }));
      const text = `${one.label}: ${panel.flipped ? panel.x.names[p[0]] : scaleText(panel.x, p[0])}, ${shown(p[1], panel.y.percent)}${intervalText(low, high, panel.y.percent)}`;
      const dot = one.weight === "bound" && !one.dots ? drawn("circle", { cx: px, cy: py, r: 5, fill: "transparent" }) : mark(px, py, one.mark, colour, one.weight === "faint" ? 0.5 : 0.85);
      group.append(hoverable(dot, text, { label: one.label, x: p[0], y: p[1], low: low ?? "", high: high ?? "" }));
    }
    plot.append(group);
  }
  if (!heat && !time && !panel.flipped) {
    let start, box;
    const at = (event) => { const r = svg.getBoundingClientRect(); return [(event.clientX - r.left) * width / r.width, event.clientY - r.top]; };
    svg.addEventListener("pointerdown", (event) => { start = at(event); svg.append(box = drawn("rect", { fill: "var(--accent)", opacity: 0.15 })); });
    svg.addEventListener("pointermove", (event) => {
      if (!start) return;
      const end = at(event);
      for (const [key, value] of Object.entries({ x: Math.min(start[0], end[0]), y: Math.min(start[1], end[1]), width: Math.abs(end[0] - start[0]), height: Math.abs(end[1] - start[1]) })) box.setAttribute(key, value);
    });
    svg.addEventListener("pointerup", (event) => {
      const end = at(event), first = start;
      start = undefined; box?.remove();
      if (!first || Math.abs(end[0] - first[0]) < 8 || Math.abs(end[1] - first[1]) < 8) return;
      zoomed.x = [first[0], end[0]].sort((a, b) => a - b).map(x.back);
      zoomed.y = [first[1], end[1]].sort((a, b) => b - a).map(y.back);
      redraw();
    });
    svg.addEventListener("dblclick", () => { zoomed.x = zoomed.y = undefined; redraw(); });
  }
  return svg;
}
const scaleText = (axis, value) => (axis.names.length ? axis.names[value] : shown(value, axis.percent));
const RAMPS = { true: [[31, 95, 159], [244, 244, 242], [168, 67, 0]], false: [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]] };
function ramp(share, diverging) {
  const stops = RAMPS[diverging], at = Math.max(0, Math.min(1, share)) * (stops.length - 1), i = Math.min(Math.floor(at), stops.length - 2);
  return `rgb(${stops[i].map((c, k) => Math.round(c + (at - i) * (stops[i + 1][k] - c))).join(",")})`;
}

const plots = new Map();  // element: how to draw it again
function drawFigure(box, figure) {
  const hidden = new Set(), zooms = figure.panels.map(() => ({}));
  const draw = () => {
    const width = box.clientWidth, columns = width >= 640 ? Math.min(2, figure.panels.length) : 1;
    const legend = made("div", "", { className: "legend" });
    const entries = new Map();
    for (const panel of figure.panels) {
      for (const one of panel.series ?? []) if (one.points.length && (one.group || one.label)) entries.set(one.group || one.label, one);
      for (const [name, ...colours] of panel.colours ?? []) entries.set(name, { colours });
    }
    for (const [name, one] of entries) {
      const button = made("button", "", { type: "button", ariaPressed: String(!hidden.has(name)) });
      button.append(swatch(one), name);
      button.addEventListener("click", () => { if (!hidden.delete(name)) hidden.add(name); draw(); });
      legend.append(button);
    }
    if (zooms.some(({ x }) => x)) {
      const back = made("button", "Whole chart", { type: "button", className: "whole" });
      back.addEventListener("click", () => { for (const zoom of zooms) zoom.x = zoom.y = undefined; draw(); });
      legend.append(back);
    }
    const panels = made("div", "", { className: "panels" });
    panels.append(...figure.panels.map((panel, i) => drawPanel(panel, Math.floor((width - 12 * (columns - 1)) / columns), hidden, zooms[i], draw)));
    box.replaceChildren(panels, legend);
  };
  plots.set(box, draw);
  draw();
}

// ---- The first screen ----

const at = (id) => document.getElementById(id);
let study;
function firstScreen() {
  const choice = { metric: 0, cut: 0, workload: 0, budget: 0, all: false };
  const told = study.verdicts.at(-1);  // the last cut is the hardest: the question is not known
  choice.cut = told?.[0] ?? study.cuts.length - 1;
  choice.metric = Math.max(0, study.metrics.findIndex(({ key }) => key === told?.[2]));
  const own = study.verdicts.filter(([cut]) => cut === choice.cut);
  choice.budget = own[Math.floor((own.length - 1) / 2)]?.[1] ?? 0;
  const select = (key, label, names) => {
    const box = made("label", `${label} `), list = made("select", "", { id: key });
    list.append(...names.map((name, i) => made("option", name, { value: i })));
    list.value = choice[key];
    list.addEventListener("change", () => { choice[key] = Number(list.value); draw(); });
    box.append(list);
    if (names.length > 1) at("controls").append(box);
  };
  select("metric", "Metric", study.metrics.map(({ label }) => label));
  select("cut", "Cut", study.cuts.map(({ title }) => title || "the prompt"));
  select("workload", "Workload", study.workloads.map((name) => (name === "all" ? "all" : name)));
  select("budget", "Budget", study.budgets);
  const every = made("input", "", { type: "checkbox", id: "all" }), label = made("label", "");
  every.addEventListener("change", () => { choice.all = every.checked; draw(); });
  label.append(every, " Every policy");
  at("controls").append(label);
  const places = study.budgets.map((name) => Number.parseFloat(name) / (name.endsWith("%") ? 100 : 1));
  const find = (rows, ...keys) => rows.find((row) => keys.every((key, i) => key === row[i]));

  function draw() {
    const { metric, cut, workload, budget } = choice, its = study.metrics[metric];
    const means = study.means.filter((row) => row[0] === metric && row[1] === cut && row[2] === workload);
    const here = means.filter((row) => row[3] === budget).sort((a, b) => (its.better > 0 ? b[6] - a[6] : a[6] - b[6]));
    const compared = here.filter((row) => study.policies[row[4]].role === "policy");
    const full = here.filter((row) => study.policies[row[4]].label === "full");
    const others = here.filter((row) => !compared.includes(row) && !full.includes(row));
    const rows = choice.all ? [...compared, ...full, ...others] : [...compared.slice(0, full.length ? 7 : 8), ...full];
    at("verdict").textContent = (find(study.verdicts, cut, budget)?.[3] ?? "No policy can be compared there.").replaceAll("`", "");
    const series = rows.map(([, , , , policy]) => ({
      ...study.policies[policy], group: "", weight: study.policies[policy].label === "full" ? "bound" : "plain", dots: false,
      points: means.filter((row) => row[4] === policy).map((row) => [places[row[3]], row[6], row[7], row[8]]).sort((a, b) => a[0] - b[0]),
    }));
    const share = study.budgets[0]?.endsWith("%");
    drawFigure(at("chart"), { panels: [{
      title: "", series, flipped: false,
      x: { label: share ? "budget (share of the prompt)" : "budget (tokens per lane)", log: Math.max(...places) >= 8 * Math.min(...places), names: [], ticks: [...new Set(places)].sort((a, b) => a - b), percent: share, said: "", line: places[budget], low: null, high: null },
      y: { label: its.label, log: false, names: [], ticks: [], percent: its.percent, said: "", line: null, low: its.percent && its.better > 0 ? 0 : null, high: its.percent && its.better > 0 ? 1 : null },
    }] });
    const table = made("table"), head = table.createTHead().insertRow(), body = table.createTBody();
    const columns = ["policy", its.label, "behind the best", "holds", ...(study.machine ? [`time to first token, ${study.machine}`] : [])];
    columns.forEach((name, i) => head.append(made("th", name, { scope: "col", className: i ? "number" : "" })));
    for (const row of rows) {
      const line = body.insertRow(), name = made("th", "", { scope: "row" });
      name.append(swatch(study.policies[row[4]]), ` ${study.policies[row[4]].label}`);
      line.append(name);
      line.dataset.policy = study.policies[row[4]].label;
      const cell = (text, small = "", data = {}) => {
        const made_ = made("td", text, { className: "number" });
        if (small) made_.append(made("small", small));
        Object.assign(made_.dataset, data);
        line.append(made_);
      };
      cell(shown(row[6], its.percent), intervalText(row[7], row[8], its.percent).slice(2, -1), { mean: row[6], low: row[7] ?? "", high: row[8] ?? "" });
      const behind = find(study.behind, metric, cut, workload, budget, row[4]), alike = behind && !(behind[6] > 0 || behind[7] < 0);
      if (row === compared[0]) cell("best");
      else if (!behind) cell("–");
      else cell(`${alike ? "≈ " : ""}${shown(Math.abs(behind[5]), its.percent)}`, behind[6] == null ? "" : alike ? "not distinguishable" : intervalText(...[behind[6], behind[7]].map(Math.abs).sort((a, b) => a - b), its.percent).slice(2, -1), { behind: behind[5] });
      const cost = find(study.costs, cut, budget, row[4]);
      cell(cost?.[3] == null ? "–" : bytes(cost[3]), "", { held: cost?.[3] ?? "" });
      if (study.machine) cell(cost?.[4] == null || !study.full_ttft ? "–" : `${cost[4] >= study.full_ttft ? "+" : "−"}${Math.abs(100 * (cost[4] / study.full_ttft - 1)).toFixed(1)} %`);
    }
    at("ranking").replaceChildren(table);
  }
  draw();
}
const bytes = (n) => { let i = 0; for (; n >= 1024 && i < 4; i++) n /= 1024; return `${Number(n.toPrecision(3))} ${["B", "KiB", "MiB", "GiB", "TiB"][i]}`; };

(async () => {
  const raw = atob(at("data").textContent);
  const packed = Uint8Array.from(raw, (c) => c.charCodeAt(0));
  study = JSON.parse(await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text());
  if (study.means.length) firstScreen();
  else at("verdict").textContent = "There are no means of any metric: no policy ran, or the study asked for analyses alone.";
  const figures = new Map(study.figures.map((figure) => [figure.name, figure]));
  for (const box of document.querySelectorAll("details.figure"))
    box.addEventListener("toggle", () => {
      const plot = box.querySelector(".plot");
      if (box.open && !plots.has(plot)) drawFigure(plot, figures.get(plot.dataset.figure));
    });
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; for (const draw of plots.values()) draw(); } });
  new MutationObserver(() => { for (const draw of plots.values()) draw(); }).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  document.documentElement.dataset.ready = "yes";
})();
