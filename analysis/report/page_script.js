// Tables sort by a click or a key on their headings, long ones can be filtered, a button turns the theme; the first screen and all figures
// are drawn from the data of the page.
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

const theme = at("theme");
const nameTheme = () => { theme.textContent = isDark() ? "Light theme" : "Dark theme"; };
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", nameTheme);
nameTheme();
theme.hidden = false;

// ---- Live figures: one renderer for all; numbers are those of figures/*.csv and tables/*.csv ----

const made = (name, text = "", properties = {}) => Object.assign(document.createElement(name), { textContent: text }, properties);
const colourOf = (colours) => colours[isDark() ? 1 : 0];
const shown = (value, percent) => {
  const number = percent ? 100 * value : value;
  return `${Number(number.toPrecision(Math.abs(number) >= 1000 ? 6 : 4))}${percent ? " %" : ""}`;
};
const intervalText = (low, high, percent) => (low == null || high == null ? "" : ` (${shown(low, percent)} to ${shown(high, percent)})`);

function swatch({ colours, mark: its, weight }) {
  const svg = drawn("svg", { width: 26, height: 12, viewBox: "0 0 26 12", "aria-hidden": "true" });
  const colour = weight === "bound" ? "var(--text)" : weight === "faint" ? "var(--line)" : colourOf(colours);
  const dashes = weight === "bound" ? "5 3" : ["none", "5 3", "2 3"][its?.[2] ?? 0];
  svg.append(drawn("path", { d: "M1 6H25", stroke: colour, "stroke-width": 2, "stroke-dasharray": dashes }));
  if (its && weight !== "faint") svg.append(mark(13, 6, its, colour));
  return svg;
}

function niceTicks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((factor) => raw <= factor * power * 1.000001) * power;
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
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
  const every = Math.ceil(axis.names.length / Math.max(1, Math.abs(to - from) / 14));  // name, where not all have room
  let ticks = axis.names.length ? axis.names.map((_, i) => i).filter((i) => i % every === 0) : axis.ticks.length > 1 ? axis.ticks : [];
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
  const series = (panel.series ?? []).filter(({ label, group, points }) => points.length && !hidden.has(group || label));
  const frame = frameOf(panel, series, width, zoomed), { x, y, left, right, top, height } = frame;
  const size = { width, height: top + height + 44 };
  const viewBox = `0 0 ${size.width} ${size.height}`;
  const svg = drawn("svg", { viewBox, ...size, role: "img", "aria-label": panel.title || frame.up.label });
  const clip = `clip${drawPanel.next = (drawPanel.next ?? 0) + 1}`, plot = drawn("g", { "clip-path": `url(#${clip})` });
  const inside = drawn("rect", { x: left - 6, y: top - 6, width: right - left + 12, height: height + 12 });
  svg.append(drawn("clipPath", { id: clip }, inside), ...axesOf(panel, frame), plot);
  if (panel.rows) svg.append(...heatMap(panel, frame, plot));
  if (panel.bars) plot.append(...barsOf(panel, frame));
  plot.append(...curvesOf(panel, series, frame));
  if (!panel.rows && !panel.bars && !panel.flipped) zoomable(svg, width, (across, up) => {
    zoomed.x = across?.map(x.back);
    zoomed.y = up?.map(y.back);
    redraw();
  });
  return svg;
}

// Where a panel is drawn, and its scales.
function frameOf(panel, series, width, zoomed) {
  const heat = panel.rows, time = panel.bars, top = 24;
  const [across, up] = panel.flipped ? [panel.y, panel.x] : [panel.x, panel.y];
  const values = { x: [], y: [] };
  for (const { points } of series) for (const [x, y, low, high] of points) { values.x.push(x); values.y.push(y, low, high); }
  for (const [y, begin, end,, tall] of time ?? []) { values.x.push(begin, end); values.y.push(y - tall / 2, y + tall / 2); }
  if (heat) {
    const ends = (axis, n) => {
      const half = n > 1 ? (axis.high - axis.low) / (n - 1) / 2 : 0;
      return axis.names.length ? [] : axis.low != null && half > 0 ? [axis.low - half, axis.high + half] : [-0.5, n - 0.5];
    };
    values.x = ends(panel.x, heat[0].length);
    values.y = ends(panel.y, heat.length);
  }
  const own = panel.flipped ? { x: values.y, y: values.x } : values;
  // Cells and bars end where their axis does.
  const exact = (axis, [first, ...rest]) => {
    if (!heat && !time) return axis;
    const [low, high] = first == null ? [null, null] : [Math.min(first, ...rest), Math.max(first, ...rest)];
    return { ...axis, log: false, low, high };
  };
  const names = up.names, left = names.length ? Math.min(width * 0.4, 14 + 6.6 * Math.max(...names.map((n) => n.length))) : 74;
  const height = names.length ? Math.max(90, names.length * 16) : Math.min(300, Math.max(180, width * 0.5));
  const right = width - (heat ? 70 : 12), ends = [top + height, top];
  if (heat || panel.flipped || (time && names.length)) ends.reverse();
  return {
    across, up, left, right, top, height,
    x: scaleOf(exact(across, own.x), own.x, left, right, zoomed.x), y: scaleOf(exact(up, own.y), own.y, ...ends, zoomed.y),
  };
}

const written = (text, place, more = {}) => drawn("text", { ...place, fill: "var(--quiet)", "font-size": 12, ...more }, text);

function axesOf(panel, { across, up, x, y, left, right, top, height }) {
  const bottom = top + height, out = [written(panel.title, { x: left, y: 14 }, { fill: "var(--text)", "font-weight": 600 })];
  const room = Math.floor(left / 6.6) - 1, cut = (text) => (text.length > room && up.names.length ? `${text.slice(0, room - 1)}…` : text);
  for (const v of y.ticks) {
    out.push(written(cut(y.text(v) ?? ""), { x: left - 8, y: y.at(v) + 4, "text-anchor": "end" }));
    if (!panel.rows) out.push(drawn("path", { d: `M${left} ${y.at(v)}H${right}`, stroke: "var(--line)", "stroke-width": 0.5 }));
  }
  let last = -1e9;
  for (const v of x.ticks) {
    const text = String(x.text(v) ?? "").slice(0, 12), half = text.length * 3.4;
    if (x.at(v) - half < last + 6) continue;
    last = x.at(v) + half;
    out.push(written(text, { x: x.at(v), y: bottom + 16, "text-anchor": "middle" }));
  }
  const half = 3.1 * across.label.length, middle = Math.min((left + right) / 2, right + 10 - half);
  out.push(written(across.label, { x: Math.max(half, middle), y: bottom + 36, "text-anchor": "middle" }));
  if (!up.names.length)
    out.push(written(up.label, { transform: `translate(12 ${top + height / 2}) rotate(-90)`, "text-anchor": "middle" }));
  const line = (d) => drawn("path", { d, stroke: "var(--quiet)", "stroke-width": 0.6 });
  const said = (text, px, py) => written(text, { x: px, y: py, "text-anchor": "end" });
  if (across.line != null) out.push(line(`M${x.at(across.line)} ${top}V${bottom}`), said(across.said, x.at(across.line) - 4, bottom - 4));
  if (up.line != null) out.push(line(`M${left} ${y.at(up.line)}H${right}`), said(up.said, right - 2, y.at(up.line) + 14));
  return out;
}

const scaleText = (axis, value) => (axis.names.length ? axis.names[value] : shown(value, axis.percent));
function blended(stops, share) {
  const at = Math.max(0, Math.min(1, share)) * (stops.length - 1), i = Math.min(Math.floor(at), stops.length - 2);
  const parts = (colour) => [1, 3, 5].map((k) => Number.parseInt(colour.slice(k, k + 2), 16));
  const [one, two] = [stops[i], stops[i + 1]].map(parts);
  return `rgb(${one.map((c, k) => Math.round(c + (at - i) * (two[k] - c))).join(",")})`;
}

// Cells go into `plot`; what comes back is the bar that says what their colours mean.
function heatMap(panel, { left, right, top, height }, plot) {
  const { rows, bar: { low, high, log, ticks, ramps } } = panel, stops = colourOf(ramps);
  const share = (v) => (!log ? (v - low) / (high - low) : v > 0 ? Math.log(v / low) / Math.log(high / low) : 0);
  const wide = (right - left) / rows[0].length, tall = height / rows.length;
  const name = (axis, i, n) =>
    (axis.names.length ? axis.names[i] : shown(axis.low != null && n > 1 ? axis.low + i * (axis.high - axis.low) / (n - 1) : i));
  rows.forEach((row, r) => row.forEach((v, c) => {
    const place = { x: left + c * wide, y: top + r * tall, width: wide + 0.3, height: tall + 0.3 };
    const value = v == null ? "no value" : `${shown(v, panel.percent)} ${panel.unit}`;
    const cell = drawn("rect", { ...place, fill: v == null ? "var(--raised)" : blended(stops, share(v)) });
    plot.append(hoverable(cell, `${name(panel.y, r, rows.length)}, ${name(panel.x, c, row.length)}: ${value}`, { value: v ?? "" }));
  }));
  const bar = Array.from({ length: 40 }, (_, i) =>
    drawn("rect", { x: right + 8, y: top + i * height / 40, width: 9, height: height / 40 + 0.3, fill: blended(stops, 1 - i / 39) }));
  for (const [v, text] of ticks) bar.push(written(text, { x: right + 20, y: top + (1 - share(v)) * height + 4 }, { class: "scale" }));
  return bar;
}

function barsOf(panel, { x, y, up }) {
  return panel.bars.map(([at, begin, end, colour, tall]) => {
    const half = tall * (up.names.length ? 0.36 : 0.5), ends = [y.at(at - half), y.at(at + half)];
    const [name, ...colours] = panel.colours[colour];
    const rect = drawn("rect", {
      x: x.at(begin), y: Math.min(...ends), width: Math.max(0.5, x.at(end) - x.at(begin)), height: Math.abs(ends[1] - ends[0]),
      fill: colourOf(colours),
    });
    return hoverable(rect, `${name}: ${shown(begin)} to ${shown(end)}`, { begin, end });
  });
}

function curvesOf(panel, series, { x, y }) {
  const order = { faint: 0, bound: 1, plain: 2 }, layers = [...series].sort((a, b) => order[a.weight] - order[b.weight]);
  const banded = layers.filter(({ weight, points }) => weight === "plain" && points.some((p) => p[2] != null));
  return layers.map((one) => {
    const faint = one.weight === "faint", bound = one.weight === "bound";
    const colour = bound ? "var(--text)" : faint ? "var(--line)" : colourOf(one.colours);
    // Bars of intervals stand beside each other.
    const beside = banded.length > 2 && banded.includes(one) && !one.dots && !panel.flipped;
    const moved = beside ? 3 * (banded.indexOf(one) - (banded.length - 1) / 2) : 0;
    const place = ([px, py]) => (panel.flipped ? [x.at(py), y.at(px)] : [x.at(px) + moved, y.at(py)]);
    const points = one.points.filter((p) => p[1] != null), group = drawn("g", {});
    if (!one.dots && points.length > 1)
      group.append(drawn("path", {
        d: points.map((p, i) => `${i ? "L" : "M"}${place(p).join(" ")}`).join(""), fill: "none", stroke: colour,
        "stroke-width": faint ? 1 : 1.8, "stroke-dasharray": bound ? "7 4" : ["none", "7 4", "2 3"][one.mark?.[2] ?? 0],
      }));
    for (const p of points) {
      const [px, py] = place(p), [at, value, low, high] = p;
      const bar = panel.flipped ? `M${x.at(low)} ${py}H${x.at(high)}` : `M${px} ${y.at(low)}V${y.at(high)}`;
      if (low != null && high != null && !faint) group.append(drawn("path", { d: bar, stroke: colour, "stroke-width": 1, opacity: 0.75 }));
      const said = `${shown(value, panel.y.percent)}${intervalText(low, high, panel.y.percent)}`;
      const dot = bound && !one.dots ? drawn("circle", { cx: px, cy: py, r: 5, fill: "transparent" })
        : mark(px, py, one.mark, colour, faint ? 0.5 : 0.85);
      const data = { label: one.label, x: at, y: value, low: low ?? "", high: high ?? "" };
      group.append(hoverable(dot, `${one.label}: ${scaleText(panel.x, at)}, ${said}`, data));
    }
    return group;
  });
}

// Calls `zoom` with what was drawn over, across and upwards in places; with nothing after a double click.
function zoomable(svg, width, zoom) {
  let start, box;
  const placeOf = (event) => {
    const its = svg.getBoundingClientRect();
    return [(event.clientX - its.left) * width / its.width, event.clientY - its.top];
  };
  svg.addEventListener("pointerdown", (event) => {
    start = placeOf(event);
    svg.append(box = drawn("rect", { fill: "var(--accent)", opacity: 0.15 }));
  });
  svg.addEventListener("pointermove", (event) => {
    if (!start) return;
    const end = placeOf(event), [x, y] = [0, 1].map((i) => Math.min(start[i], end[i]));
    const [wide, tall] = [0, 1].map((i) => Math.abs(end[i] - start[i]));
    for (const [key, value] of Object.entries({ x, y, width: wide, height: tall })) box.setAttribute(key, value);
  });
  svg.addEventListener("pointerup", (event) => {
    const end = placeOf(event), first = start;
    start = undefined;
    box?.remove();
    if (!first || Math.abs(end[0] - first[0]) < 8 || Math.abs(end[1] - first[1]) < 8) return;
    zoom([first[0], end[0]].sort((a, b) => a - b), [first[1], end[1]].sort((a, b) => b - a));
  });
  svg.addEventListener("dblclick", () => zoom());
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
    const each = Math.floor((width - 12 * (columns - 1)) / columns);
    panels.append(...figure.panels.map((panel, i) => drawPanel(panel, each, hidden, zooms[i], draw)));
    box.replaceChildren(panels, legend);
  };
  plots.set(box, draw);
  draw();
}

// ---- The first screen ----

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
    const over = (row) => find(study.costs, cut, budget, row[4])?.[6] === true;
    const compared = here.filter((row) => study.policies[row[4]].role === "policy" && !over(row));
    const full = here.filter((row) => study.policies[row[4]].label === "full");
    const others = here.filter((row) => !compared.includes(row) && !full.includes(row));
    const rows = choice.all ? [...compared, ...full, ...others] : [...compared.slice(0, full.length ? 7 : 8), ...full];
    at("verdict").textContent = (find(study.verdicts, cut, budget)?.[3] ?? "No policy can be compared there.").replaceAll("`", "");
    const series = rows.map(([, , , , policy]) => ({
      ...study.policies[policy], group: "", weight: study.policies[policy].label === "full" ? "bound" : "plain", dots: false,
      points: means.filter((row) => row[4] === policy).map((row) => [places[row[3]], row[6], row[7], row[8]]).sort((a, b) => a[0] - b[0]),
    }));
    const share = study.budgets[0]?.endsWith("%");
    const plain = { log: false, names: [], ticks: [], said: "", line: null, low: null, high: null };
    const x = {
      ...plain, label: share ? "budget (share of the prompt)" : "budget (tokens per lane)", percent: share, line: places[budget],
      log: Math.max(...places) >= 8 * Math.min(...places), ticks: [...new Set(places)].sort((a, b) => a - b),
    };
    const y = { ...plain, label: its.label, percent: its.percent, ...(its.percent && its.better > 0 ? { low: 0, high: 1 } : {}) };
    drawFigure(at("chart"), { panels: [{ title: "", series, flipped: false, x, y }] });
    const table = made("table"), head = table.createTHead().insertRow(), body = table.createTBody();
    const columns = ["policy", its.label, "behind the best", "holds", ...(study.machine ? [`time to first token, ${study.machine}`] : [])];
    columns.forEach((name, i) => head.append(made("th", name, { scope: "col", className: i ? "number" : "" })));
    for (const row of rows) {
      const line = body.insertRow(), name = made("th", "", { scope: "row" });
      name.append(swatch(series[rows.indexOf(row)]), ` ${study.policies[row[4]].label}`);
      line.append(name);
      line.dataset.policy = study.policies[row[4]].label;
      const cell = (text, small = "", data = {}) => {
        const made_ = made("td", text, { className: "number" });
        if (small) made_.append(made("small", small));
        Object.assign(made_.dataset, data);
        line.append(made_);
      };
      const interval = (low, high) => intervalText(low, high, its.percent).slice(2, -1);
      cell(shown(row[6], its.percent), interval(row[7], row[8]), { mean: row[6], low: row[7] ?? "", high: row[8] ?? "" });
      const behind = find(study.behind, metric, cut, workload, budget, row[4]), alike = behind && !(behind[6] > 0 || behind[7] < 0);
      if (row === compared[0]) cell("best");
      else if (!behind) cell("–", study.policies[row[4]].role !== "oracle" && !full.includes(row) && over(row) ? "over its budget" : "");
      else {
        const told = alike ? "not distinguishable" : interval(...[behind[6], behind[7]].map(Math.abs).sort((a, b) => a - b));
        cell(`${alike ? "≈ " : ""}${shown(Math.abs(behind[5]), its.percent)}`, behind[6] == null ? "" : told, { behind: behind[5] });
      }
      const cost = find(study.costs, cut, budget, row[4]);
      cell(cost?.[3] == null ? "–" : bytes(cost[3]), "", { held: cost?.[3] ?? "" });
      const more = cost?.[4] == null || !study.full_ttft ? null : 100 * (cost[4] / study.full_ttft - 1);
      if (study.machine) cell(more === null ? "–" : `${more < 0 ? "−" : "+"}${Math.abs(more).toFixed(1)} %`);
    }
    at("ranking").replaceChildren(table);
  }
  draw();
}
const bytes = (n) => {
  let i = 0;
  for (; n >= 1024 && i < 4; i++) n /= 1024;
  return `${Number(n.toPrecision(3))} ${["B", "KiB", "MiB", "GiB", "TiB"][i]}`;
};

(async () => {
  const raw = atob(at("data").textContent);
  const packed = Uint8Array.from(raw, (c) => c.charCodeAt(0));
  study = JSON.parse(await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text());
  if (study.means?.length) firstScreen();
  else if (study.means) at("verdict").textContent = "There are no means of any metric: no policy ran, or the study asked for analyses alone.";
  const figures = new Map(study.figures.map((figure) => [figure.name, figure]));
  for (const box of document.querySelectorAll("details.figure")) {
    const plot = box.querySelector(".plot");
    const draw = () => { if (box.open && !plots.has(plot)) drawFigure(plot, figures.get(plot.dataset.figure)); };
    box.addEventListener("toggle", draw);
    draw();
  }
  const again = () => { for (const draw of plots.values()) draw(); };
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; again(); } });
  new MutationObserver(again).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  document.documentElement.dataset.ready = "yes";
})();
