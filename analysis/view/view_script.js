// Draws a packed view: the text once per policy, every word shaded by the share of lanes that hold it.
const EVIDENCE = 1, GENERATED = 2;
const SHADES = [0.05, 0.15, 0.35, 0.65, 1];  // the largest share of each shade, s1 to s5
const CHUNK = 8;                             // lines that are made and dropped together
const CHOICES = ["budget", "cut", "step", "layer", "head", "first", "second"];
const made = (name, text = "", className = "") =>
  Object.assign(document.createElement(name), { textContent: text, className });
const within = (value, low, high) => Math.max(low, Math.min(high, value));
const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)} %`;

// ---- What the page holds (analysis/view/view_page.hpp) ----

class Bytes {
  constructor(bytes) { this.bytes = bytes; this.next = 0; }
  take(n) { this.next += n; return this.bytes.subarray(this.next - n, this.next); }
  number() {
    for (let value = 0, scale = 1; ; scale *= 128) {
      const byte = this.bytes[this.next++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  }
  ascending() {
    const n = this.number();
    if (n === 0) return NONE;
    const out = new Uint32Array(n);
    for (let i = 0, before = 0; i < n; i++) out[i] = before += this.number();
    return out;
  }
}
const NONE = new Uint32Array(0);

async function unpackedBytes() {
  const text = at("data").textContent;
  at("data").remove();
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Bytes(new Uint8Array(await new Response(stream).arrayBuffer()));
}

function unpacked(bytes) {
  const decoder = new TextDecoder();
  const view = JSON.parse(decoder.decode(bytes.take(bytes.number())));
  const n = view.tokens;
  const lengths = Array.from({ length: n }, () => bytes.number());
  const text = bytes.take(lengths.reduce((a, b) => a + b, 0));
  view.flags = bytes.take(n);
  // A unit is one token, or several that only together are whole characters.
  view.units = [];
  view.unitOf = new Uint32Array(n);
  for (let token = 0, from = 0, end = 0; token < n; token++) {
    end += lengths[token];
    view.unitOf[token] = view.units.length;
    if (end < text.length && (text[end] & 0xc0) === 0x80) continue;
    const first = view.units.length ? view.units.at(-1).end : 0;
    let flags = 0;
    for (let i = first; i <= token; i++) flags |= view.flags[i];
    view.units.push({ first, end: token + 1, flags, text: visible(decoder.decode(text.subarray(from, end))) });
    from = end;
  }
  view.lanes = view.layers * view.heads;
  const attendedRow = () => {
    const positions = bytes.ascending();
    return { positions, shares: Float32Array.from(bytes.take(positions.length), (level) => 2 ** (-level / 16)) };
  };
  view.rows = Array.from({ length: view.rows }, attendedRow);
  if (view.laneRows) view.laneRows = view.rows.map(() => Array.from({ length: view.lanes }, attendedRow));
  for (const cut of view.cuts)
    cut.cells.forEach((cell, i) => {
      cell.packed = bytes.take(cell.bytes);
      cell.planes = cell.repeats ? cut.cells[i - view.policies.length].planes : bytes.take(cell.ranks);
    });
  return view;
}

// Characters that have no shape of their own, or that turn the direction of what follows, are spelt out.
function visible(text) {
  return text.replace(/\r/g, "␍").replace(/\t/g, "⇥ ")
    .replace(/(?![\n\u200c\u200d])[\p{Cc}\p{Cf}\u2028\u2029]/gu, (c) => `⟨${c.codePointAt(0).toString(16)}⟩`);
}

// The lanes of a cell: bits of step 0, and what changes at each step.
function lanesOf(cut, cell) {
  if (cell.lanes || cell.skipped) return cell.lanes ?? [];
  const bytes = new Bytes(cell.packed);
  cell.lanes = Array.from({ length: view.lanes }, () => ({
    bits: bytes.take((cut.prompt + 7) >> 3),
    changes: Array.from({ length: cut.steps }, () => bytes.ascending()),
  }));
  const measured = view.rows.slice(cut.prompt - 1 + cut.firstStep - view.firstRow);
  cell.left = measured.map((row) => bytes.take(row.positions.length));
  cell.kept &&= measured.map(() => bytes.take(view.lanes));
  return cell.lanes;
}

// How high a policy ranks a unit of the prompt in the median of the chosen lanes; nothing where it ranks by no score.
function rankOf(cell, { first, end }) {
  if (!cell.planes.length || first >= cut.prompt) return undefined;
  const size = (cut.prompt + 7) >> 3, ranks = [];
  for (const lane of chosenLanes()) {
    const bit = (plane, token) => (cell.planes[(3 * lane + plane) * size + (token >> 3)] >> (token & 7)) & 1;
    const rank = (token) => bit(0, token) + 2 * bit(1, token) + 4 * bit(2, token);
    let best = 7;
    for (let token = first; token < Math.min(end, cut.prompt); token++) best = Math.min(best, rank(token));
    ranks.push(best);
  }
  return ranks.sort()[(ranks.length - 1) >> 1];
}

// Whether a lane holds a token at a step: a token that has arrived is there until a change says otherwise.
function holds(cut, lane, step, token) {
  let held = token < cut.prompt ? (lane.bits[token >> 3] >> (token & 7)) & 1 : token < cut.prompt + step ? 1 : 0;
  for (let s = 0; s < step; s++) if (lane.changes[s].includes(token)) held ^= 1;
  return held;
}

// ---- What is asked for ----

const state = { budget: 0, cut: 0, step: 0, layer: -1, head: -1, attention: false, shown: [], first: -1, second: -1 };
let view, cut, row, panels = [], lines = [], lineOf, cursor = -1, query = -1;

const cellOf = (policy, budget = state.budget) => cut.cells[budget * view.policies.length + policy];
function chosenLanes() {
  const out = [];
  for (let lane = 0; lane < view.lanes; lane++)
    if ((state.layer < 0 || Math.floor(lane / view.heads) === state.layer) && (state.head < 0 || lane % view.heads === state.head))
      out.push(lane);
  return out;
}
const lanesText = () => (chosenLanes().length === 1 ? "one lane" : `${chosenLanes().length} lanes`);

// Of each unit, the share of the chosen lanes that hold it, the mean over its tokens.
function sharesOf(cell) {
  const lanes = lanesOf(cut, cell), chosen = chosenLanes();
  const counts = new Uint32Array(view.tokens), state8 = new Uint8Array((view.tokens + 7) >> 3);
  for (const number of cell.skipped ? [] : chosen) {
    const lane = lanes[number];
    state8.fill(0);
    state8.set(lane.bits);
    for (let token = cut.prompt; token < cut.prompt + state.step; token++) state8[token >> 3] |= 1 << (token & 7);
    for (let s = 0; s < state.step; s++) for (const token of lane.changes[s]) state8[token >> 3] ^= 1 << (token & 7);
    for (let byte = 0; byte < state8.length; byte++)
      for (let bits = state8[byte]; bits; bits &= bits - 1) counts[byte * 8 + 31 - Math.clz32(bits & -bits)]++;
  }
  return Float32Array.from(view.units, (unit) => {
    let sum = 0;
    for (let token = unit.first; token < unit.end; token++) sum += counts[token];
    return sum / (unit.end - unit.first) / chosen.length;
  });
}

// What the current query attends in the chosen lanes; of some but not all of them the largest entries of each.
function attendedNow() {
  const index = cut.prompt - 1 + state.step - view.firstRow, chosen = chosenLanes();
  if (chosen.length === view.lanes) return view.rows[index];
  if (!view.laneRows) return undefined;
  const parts = new Map();
  for (const lane of chosen)
    view.laneRows[index][lane].positions.forEach((token, k) => {
      if (!parts.has(token)) parts.set(token, []);
      parts.get(token).push([lane, view.laneRows[index][lane].shares[k] / chosen.length]);
    });
  const positions = [...parts.keys()].sort((a, b) => a - b);
  return { positions, parts, shares: positions.map((token) => parts.get(token).reduce((sum, [, share]) => sum + share, 0)) };
}

const there = (unit) => view.units[unit].first < cut.prompt + state.step;
const shade = (share) => SHADES.findIndex((most) => share <= most + 1e-6) + 1;

// ---- Lines: the same for all panels, because these are equally wide ----

const ruler = document.createElement("canvas").getContext("2d");
const widths = new Map();
function widthOf(text) {
  if (!widths.has(text)) widths.set(text, ruler.measureText(text).width);
  return widths.get(text);
}

// Words are pieces between which no line may break. A piece is a part of a unit: whole, or up to a line end.
function wordsOf() {
  const words = [], starts = new Set([view.answer, ...view.cuts.map(({ prompt }) => prompt)].map((token) => view.unitOf[token]));
  let breakable = true;
  view.units.forEach(({ text }, unit) => {
    breakable ||= starts.has(unit);
    for (const piece of text.match(/\n|[^\n]{1,24}\n?/gu) ?? [""]) {
      const wide = /^[\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef]/u.test(piece);
      const word = [unit, piece.replace("\n", "↵")];
      if (breakable || wide || /^\s/u.test(piece)) words.push({ pieces: [word], ends: false });
      else words.at(-1).pieces.push(word);
      words.at(-1).ends = piece.endsWith("\n");
      breakable = wide || /\s$/u.test(piece) || piece.length >= 24;
    }
  });
  return words;
}

function layOut() {
  const sample = made("div", "", "lines");
  panels[0].lines.append(sample);
  ruler.font = `600 ${getComputedStyle(sample).font.replace(/^\S*\b(normal|400)\b\s*/, "")}`;
  sample.remove();
  widths.clear();
  const most = panels[0].lines.clientWidth - 2;
  const answer = `the full cache’s answer begins${cut.fullRight === null ? "" : cut.fullRight ? ": right" : ": wrong"}`;
  const starts = new Map([[view.unitOf[cut.prompt], "the policy has cut its cache"], [view.unitOf[view.answer], answer]]);
  if (cut.prompt === view.answer) starts.set(view.unitOf[cut.prompt], `the policy has cut its cache, ${answer}`);
  lines = [];
  lineOf = new Uint32Array(view.units.length);
  let line = [], used = 0;
  const close = () => { if (line.length) lines.push(line); line = []; used = 0; };
  for (const { pieces, ends } of view.words) {
    const [unit, text] = pieces[0];
    if (starts.has(unit) && (line.at(-1)?.[0] ?? -1) !== unit) {
      close();
      lines.push(starts.get(unit));
      starts.delete(unit);
    }
    const width = pieces.reduce((sum, piece) => sum + widthOf(piece[1]), 0);
    let begin = pieces;
    if (used > 0 && used + width > most) {
      if (text.startsWith(" ") && text.length > 1) {  // the space stays behind, and is no word
        line.push([unit, " ", true]);
        begin = [[unit, text.slice(1)], ...pieces.slice(1)];
      }
      close();
    }
    for (const piece of begin) {
      line.push(piece);
      used += widthOf(piece[1]);
    }
    if (ends) close();
  }
  close();
  lines.forEach((each, i) => { if (typeof each !== "string") for (const [unit] of each) lineOf[unit] = i; });
  for (const panel of panels) panel.lines.style.height = `${lines.length * lineHeight}px`;
}

// ---- Panels ----

let lineHeight = 27, range = [0, 0], everything = false;

function buildPanels() {
  const { first, second } = state, both = [first, second];
  const asked = first < 0 ? state.shown.map((policy) => [policy]) : innerWidth < 640 ? [both] : [[first], both, [second]];
  for (const id of ["texts", "heads", "holders"]) at(id).replaceChildren();
  document.documentElement.style.setProperty("--columns", asked.length);
  panels = asked.map((policies) => {
    const names = policies.map((policy) => view.policies[policy]);
    const panel = {
      policies, names, name: names.join(" − "), element: made("section", "", "panel"), lines: made("div", "", "lines"), chunks: new Map(),
      head: made("div"), holder: made("div"), map: made("div", "", "map"), canvas: document.createElement("canvas"), frame: made("i"),
    };
    panel.element.dataset.policy = panel.head.dataset.policy = panel.holder.dataset.policy = panel.name;
    panel.element.setAttribute("aria-label", panel.name);
    panel.map.append(panel.canvas, panel.frame);
    panel.element.append(panel.lines, panel.map);
    const scroll = (event) => {
      if (event.buttons === 0) return;
      const box = panel.canvas.getBoundingClientRect();
      show(Math.floor((event.clientY - box.top) / box.height * lines.length));
    };
    panel.map.addEventListener("pointerdown", (event) => { panel.map.setPointerCapture(event.pointerId); scroll(event); });
    panel.map.addEventListener("pointermove", scroll);
    at("texts").append(panel.element);
    at("heads").append(panel.head);
    at("holders").append(panel.holder);
    return panel;
  });
  layOut();
}

// The classes of the words of every panel at the chosen moment.
function shadePanels() {
  const position = cut.prompt - 1 + state.step;
  query = state.step >= cut.firstStep ? view.unitOf[position] : -1;
  row = query < 0 ? undefined : attendedNow();
  const cache = new Map();
  const shares = (policy) => {
    if (!cache.has(policy)) cache.set(policy, sharesOf(cellOf(policy)));
    return cache.get(policy);
  };
  for (const panel of panels) {
    const [mine, other] = panel.policies.map(shares);
    panel.skipped = panel.policies.map((policy) => cellOf(policy).skipped).find((text) => text) ?? "";
    panel.shares = mine;
    panel.other = other;
    panel.classes = Array.from(mine, (share, unit) => {
      if (!there(unit)) return "later";
      if (panel.skipped) return "";
      if (other === undefined) return share > 0 ? `s${shade(share)}` : "gone";
      if (share === 0 && other[unit] === 0) return "gone";
      const apart = shade(Math.abs(share - other[unit])) - 1;
      return apart < 1 ? "same" : `${share > other[unit] ? "a" : "b"}${apart}`;
    });
  }
}

// Of the current query's attention to a unit: how much, and the share of that which is left under a policy.
function attentionTo(unit, policy) {
  const cell = policy === undefined ? undefined : cellOf(policy);
  let paid = 0, left = 0;
  for (let token = view.units[unit].first; row && token < view.units[unit].end; token++) {
    const k = row.positions.indexOf(token);
    if (k < 0) continue;
    paid += row.shares[k];
    if (!cell) continue;
    if (!row.parts) left += row.shares[k] * cell.left[state.step - cut.firstStep][k] / 255;
    for (const [lane, share] of row.parts?.get(token) ?? []) left += share * holds(cut, lanesOf(cut, cell)[lane], state.step, token);
  }
  return { paid, left: paid > 0 ? left / paid : 0 };
}

// A word as it looks under a panel's policy. `first`, `last`: of its line, where a frame begins and ends anew.
function wordSpans(panel, unit, text, first, last) {
  const { flags } = view.units[unit], space = panel.classes[unit] === "gone" && !(flags & EVIDENCE) ? text.match(/^\s*/)[0] : "";
  const span = made("span", text.slice(space.length), `w ${panel.classes[unit]}`);
  span.dataset.u = unit;
  if (flags & EVIDENCE) {
    span.classList.add("evidence");
    if (first || !(view.units[unit - 1]?.flags & EVIDENCE)) span.classList.add("begins");
    if (last || !(view.units[unit + 1]?.flags & EVIDENCE)) span.classList.add("ends");
  }
  if (flags & GENERATED) span.classList.add("generated");
  if (unit === query) span.classList.add("query");
  if (unit === cursor) span.classList.add("at");
  if (state.attention && row && !panel.other && !panel.skipped) {
    const { paid, left } = attentionTo(unit, panel.policies[0]);
    const height = paid > 0 ? within(7 + Math.log2(paid) / 2, 2, 6) : 0;  // 25 % and more: 6 px, 0.1 %: 2 px
    if (height > 0) span.style.cssText = `--h-paid: ${height}px; --h-left: ${height * left}px`;
  }
  return space ? [space, span] : [span];  // strokes go through words, not through what is between them
}

function chunkOf(panel, index) {
  const chunk = made("div", "", "chunk");
  for (const line of lines.slice(index * CHUNK, (index + 1) * CHUNK)) {
    if (typeof line === "string") {
      chunk.append(made("div", line, "divider"));
      continue;
    }
    const div = made("div");
    div.dir = "auto";
    const last = line.length - (line.at(-1)[2] ? 2 : 1);
    line.forEach(([unit, text, behind], i) => {
      if (behind) div.append(text);
      else div.append(...wordSpans(panel, unit, text, i === 0, i >= last));
    });
    chunk.append(div);
  }
  return chunk;
}

// Makes the lines that are on the screen, and drops those that are not.
function draw(anew = false) {
  // What is measured is measured first: after a change the browser would have to lay out anew for it.
  const top = at("texts").getBoundingClientRect().top, bar = at("bar").offsetHeight, dock = at("dock").offsetHeight;
  const map = panels[0].canvas.clientHeight, whole = lines.length * lineHeight, seen = Math.max(0, innerHeight - dock - Math.max(bar, top));
  const count = Math.ceil(lines.length / CHUNK), high = CHUNK * lineHeight;
  const first = everything ? 0 : within(Math.floor(-top / high), 0, count);
  const end = everything ? count : within(Math.ceil((innerHeight - top) / high) + 1, 0, count);
  range = [first, end];
  for (const panel of panels) {
    for (const [index, chunk] of panel.chunks)
      if (anew || index < first || index >= end) { chunk.remove(); panel.chunks.delete(index); }
    let next = panel.lines.firstChild;
    for (let index = first; index < end; index++) {
      const there = panel.chunks.get(index);
      if (there) { next = there.nextSibling; continue; }
      const chunk = chunkOf(panel, index);
      panel.chunks.set(index, chunk);
      panel.lines.insertBefore(chunk, next);
    }
    panel.lines.style.paddingTop = `${first * high}px`;
  }
  for (const { frame } of panels) {
    frame.style.transform = `translateY(${within((bar - top) / whole, 0, 1) * map}px)`;
    frame.style.height = `${Math.min(map, seen / whole * map)}px`;
  }
}

// The whole text, a pixel per some lines: how much of it is held, and where the evidence is.
function drawMaps() {
  const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(name).trim();
  for (const panel of panels) {
    const { canvas } = panel, high = Math.max(1, canvas.clientHeight), paint = canvas.getContext("2d");
    canvas.width = 12;
    canvas.height = high;
    const each = lines.map((line) => {
      if (typeof line === "string") return [0, 0, false];
      let sum = 0, n = 0, evidence = false;
      for (const [unit] of line) {
        if (view.units[unit].flags & EVIDENCE) evidence = true;
        if (!there(unit)) continue;
        sum += panel.other ? panel.shares[unit] - panel.other[unit] : panel.shares[unit];
        n += 1;
      }
      return [sum, n, evidence];
    });
    paint.fillStyle = colour("--raised");
    paint.fillRect(0, 0, 12, high);
    for (let y = 0; y < high; y++) {
      const begin = Math.floor(y * lines.length / high), end = Math.max(begin + 1, Math.floor((y + 1) * lines.length / high));
      let sum = 0, n = 0;
      for (let i = begin; i < end && i < each.length; i++) { sum += each[i][0]; n += each[i][1]; }
      const mean = n ? sum / n : 0, level = shade(Math.abs(mean));
      if (n === 0 || mean === 0) continue;
      paint.fillStyle = colour(panel.other && mean < 0 ? `--b${Math.min(4, level)}` : `--s${level}`);
      paint.fillRect(0, y, 12, 1);
    }
    paint.fillStyle = colour("--frame");
    each.forEach(([, , evidence], i) => { if (evidence) paint.fillRect(0, Math.floor(i * high / lines.length) - 1, 12, 3); });
  }
}

// ---- What is said of a panel and of a word ----

// What the model answered through a policy's cache.
function answered([text, right]) {
  const said = made("p", "", `answer${right === null ? "" : right ? " right" : " wrong"}`);
  const shown = visible(text), wrong = `✗ wrong${cut.fullRight === false ? ", the full cache too" : ""}`;
  said.append(made("b", right === null ? "answers" : right ? "✓ right" : wrong),
    shown.trim() ? ` “${shown.trim().replace(/\n/g, "↵")}”` : ": nothing");
  said.title = shown;
  return said;
}

function markOf(policy) {
  const [light, dark, ...shape] = view.styles[policy];
  return drawn("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" }, mark(0, 0, shape, isDark() ? dark : light));
}

function described(panel) {
  const heading = made("h2");
  panel.policies.forEach((policy, i) => heading.append(i ? " − " : "", markOf(policy), view.policies[policy]));
  panel.head.replaceChildren(heading);
  if (panel.skipped) {
    panel.head.append(made("p", `Not run: ${panel.skipped}`, "skipped"));
    return;
  }
  const bit = made("div", "", "bit"), list = made("dl");
  let evidence = 0, of = 0, gone = 0, words = 0, mine = 0, others = 0;
  view.units.forEach((unit, i) => {
    if (!(unit.flags & EVIDENCE) || !there(i)) return;
    evidence += panel.shares[i];
    of += 1;
    if (of <= 40) bit.append(...wordSpans(panel, i, unit.text.replace(/\n/g, "↵"), of === 1, false));
  });
  bit.lastChild?.classList.add("ends");
  for (const { pieces } of view.words) {
    const units = pieces.map(([unit]) => unit);
    if (!there(units[0]) || !pieces.some(([, text]) => /[^\s↵]/.test(text))) continue;
    words += 1;
    gone += units.every((unit) => panel.classes[unit] === "gone");
    mine += units.some((unit) => panel.classes[unit].startsWith("a"));
    others += units.some((unit) => panel.classes[unit].startsWith("b"));
  }
  const fact = (name, text) => list.append(made("dt", name), made("dd", text));
  if (panel.other) {
    fact("held more by", `${panel.names[0]}: ${mine} words`);
    fact("", `${panel.names[1]}: ${others} words`);
    fact("gone in both", `${gone} of ${words} words`);
  } else {
    const { kept, answer } = cellOf(panel.policies[0]), lanes = chosenLanes();
    if (answer) panel.head.append(answered(answer));
    if (of) fact("evidence held", percent(evidence / of));
    fact("words gone", `${gone} of ${words}`);
    if (kept && query >= 0)
      fact("attention left", percent(lanes.reduce((sum, lane) => sum + kept[state.step - cut.firstStep][lane], 0) / lanes.length / 255));
  }
  if (of) panel.head.append(bit);
  panel.head.append(list);
}

const quoted = (unit) => `“${view.units[unit].text.replace(/\n/g, "↵").trim() || view.units[unit].text}”`;

function describeWord() {
  const unit = cursor < 0 ? query : cursor, said = at("word");
  said.replaceChildren();
  for (const { holder } of panels) holder.replaceChildren();
  if (unit < 0) {
    said.textContent = "Point at a word, or move to it with the arrow keys.";
    return;
  }
  const { flags, first, end } = view.units[unit];
  const kinds = [end - first > 1 ? `tokens ${first} to ${end - 1}` : `token ${first}`];
  if (flags & EVIDENCE) kinds.push("evidence");
  if (flags & GENERATED) kinds.push("generated");
  if (!there(unit)) kinds.push("not there yet");
  said.append(made("strong", quoted(unit)), ` ${kinds.join(", ")}. `);
  if (row && unit === query) {
    said.append("It attends most: ");
    const best = Array.from(row.positions.keys()).sort((a, b) => row.shares[b] - row.shares[a]).slice(0, 5);
    for (const k of best) {
      const button = made("button", `${quoted(view.unitOf[row.positions[k]])} ${percent(row.shares[k])}`);
      button.dataset.go = view.unitOf[row.positions[k]];
      said.append(button, " ");
    }
  } else if (query >= 0 && !row) {
    said.append("With so many queries the page holds no attention of single lanes.");
  } else if (row && there(unit)) {
    const { paid } = attentionTo(unit);
    const where = row.parts ? ` in ${lanesText()}` : "";
    said.append(paid > 0 ? `${quoted(query)} pays it ${percent(paid)} of its attention${where}.`
      : `It is not among the ${row.positions.length} tokens that ${quoted(query)} attends most${where}.`);
  }
  for (const panel of panels) describeHolders(panel, unit);
}

// Which lanes hold a word under a panel's policies, and under one of them also where and at other budgets.
function describeHolders({ policies, names, other, skipped, holder }, unit) {
  if (skipped || !there(unit)) return;
  const { first, end } = view.units[unit], [policy] = policies;
  const holdersOf = (cell) => lanesOf(cut, cell).map((lane) => {
    for (let token = first; token < end; token++) if (holds(cut, lane, state.step, token)) return true;
    return false;
  });
  const count = (cell) => holdersOf(cell).filter(Boolean).length;
  policies.forEach((each, i) => {
    holder.append(made("div", `${count(cellOf(each))} of ${view.lanes} lanes hold it${other ? ` under ${names[i]}` : ""}`));
  });
  if (other) return;
  const canvas = document.createElement("canvas"), size = within(Math.floor(holder.clientWidth / view.layers), 3, 7);
  canvas.width = view.layers * size;
  canvas.height = view.heads * size;
  canvas.title = "Layers from left to right, KV heads from top to bottom";
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", canvas.title);
  const paint = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  holdersOf(cellOf(policy)).forEach((held, lane) => {
    paint.fillStyle = style.getPropertyValue(held ? "--accent" : "--line");
    paint.fillRect(Math.floor(lane / view.heads) * size, (lane % view.heads) * size, size - 1, size - 1);
  });
  const budgets = view.budgets.map((text, budget) => [text, cellOf(policy, budget)]).filter(([, cell]) => !cell.skipped);
  const rank = rankOf(cellOf(policy), view.units[unit]);
  if (rank !== undefined) {
    const said = made("div", rank === 0 ? "kept whatever its score" : rank === 7 ? "score: not in the best half"
      : `score: among the best ${view.bestShares[rank - 1] * 100} %`);
    said.title = `Of the prompt’s tokens by the policy’s score at the cut; the median of ${lanesText()}`;
    holder.append(said);
  }
  holder.append(canvas, made("div", budgets.map(([text, cell]) => `${text}:\u00a0${count(cell)}`).join(" · "), "quiet"));
  const { paid, left } = row ? attentionTo(unit, policy) : { paid: 0 };
  if (paid > 0) holder.append(made("div", `${percent(left)} of that attention is left`));
}

// ---- Controls ----

function sayMoment() {
  const position = cut.prompt - 1 + state.step, budget = view.budgets[state.budget];
  const tokens = [...new Set(view.policies.map((_, policy) => cellOf(policy)).filter((cell) => !cell.skipped).map((cell) => cell.tokens))];
  at("budget-said").textContent = `${budget}${tokens.length === 1 && `${tokens[0]}` !== budget ? `, ${tokens[0]} tokens per lane` : ""}`;
  at("cut-said").textContent =
    { prompt: "prompt: the question is known", question: "question: it is not known" }[cut.text] ?? `${cut.text} tokens`;
  const next = position + 1 < view.tokens ? `, ${quoted(view.unitOf[position + 1])} follows` : "";
  at("step-said").textContent =
    `${state.step} of ${cut.steps}: ${query >= 0 ? `${quoted(query)} is the query${next}` : "right after the cut"}`;
}

function remember() {
  const text = Object.entries(state).map(([key, value]) => `${key}=${Number(value === true) || value}`).join("&");
  try { history.replaceState(null, "", `#${text}`); } catch { /* a frame without an address */ }
}

function recall() {
  for (const [key, text] of new URLSearchParams(location.hash.slice(1))) {
    const numbers = text.split(",").map(Number).filter(Number.isInteger);
    if (key === "shown") state.shown = numbers.filter((policy) => view.policies[policy] !== undefined);
    else if (key === "attention") state.attention = text === "1";
    else if (key in state && numbers.length === 1) state[key] = numbers[0];
  }
}

// Brings everything up to date with `state`. `rebuilds`: other panels, or another text between them.
function update(rebuilds) {
  const bounds = {
    budget: [0, view.budgets.length - 1], cut: [0, view.cuts.length - 1], layer: [-1, view.layers - 1], head: [-1, view.heads - 1],
    first: [-1, view.policies.length - 1], second: [0, view.policies.length - 1],
  };
  for (const [name, [low, high]] of Object.entries(bounds)) state[name] = within(state[name], low, high);
  cut = view.cuts[state.cut];
  state.step = within(state.step, 0, cut.steps);
  if (state.second === state.first) state.second = state.first === 0 && view.policies.length > 1 ? 1 : 0;
  if (state.shown.length === 0) state.shown = [0];
  at("step").max = cut.steps;
  for (const name of CHOICES) at(name).value = state[name];
  at("attention").checked = state.attention;
  at("minus").hidden = state.first < 0;
  for (const box of at("policies").querySelectorAll("input")) {
    box.checked = state.shown.includes(Number(box.value));
    box.disabled = state.first >= 0;
  }
  if (rebuilds) buildPanels();
  shadePanels();
  panels.forEach(described);
  sayMoment();
  describeWord();
  legend();
  sizeBars();
  draw(true);
  drawMaps();
}

function sizeBars() {
  const { style } = document.documentElement;
  style.setProperty("--bar-height", `${at("bar").offsetHeight}px`);
  style.setProperty("--dock-height", `${at("dock").offsetHeight}px`);
}

function show(line) {
  const top = at("texts").offsetTop + line * lineHeight, bar = at("bar").offsetHeight;
  scrollTo(0, top - bar - (innerHeight - bar - at("dock").offsetHeight) * 0.4);
  draw();
}

// Puts the cursor on a unit.
function go(unit, scrolls) {
  cursor = unit;
  for (const span of at("texts").querySelectorAll(".at")) span.classList.remove("at");
  if (scrolls && unit >= 0) {
    const top = at("texts").getBoundingClientRect().top + lineOf[unit] * lineHeight;
    if (top < at("bar").offsetHeight + lineHeight || top > innerHeight - at("dock").offsetHeight - 2 * lineHeight) show(lineOf[unit]);
  }
  for (const span of at("texts").querySelectorAll(`[data-u="${unit}"]`)) span.classList.add("at");
  describeWord();
}

// A token behind the cut as a query: the step in which it attends.
function ask(unit) {
  if (view.units[unit].first < cut.prompt) return;
  state.step = view.units[unit].end - cut.prompt;
  state.attention = true;
  cursor = -1;
  update(false);
  remember();
}

function nextEvidence() {
  const from = Math.max(cursor, -1), n = view.units.length;
  for (let i = 1; i <= n; i++) {
    const unit = (from + i) % n, begins = view.units[unit].flags & EVIDENCE && !(view.units[unit - 1]?.flags & EVIDENCE);
    if (begins) { go(unit, false); show(lineOf[unit]); return; }
  }
}

// The unit that a key leads to from the cursor.
function moved(key) {
  const line = cursor < 0 ? range[0] * CHUNK : lineOf[cursor], last = view.units.length - 1;
  const beside = (to) => {
    let other = line + to;
    while (typeof lines[other] === "string") other += to;
    const column = lines[line].findIndex?.(([unit]) => unit === cursor) ?? 0;
    return lines[other]?.[within(column, 0, lines[other].length - 1)][0] ?? cursor;
  };
  const ways = {
    ArrowRight: () => Math.min(last, cursor + 1), ArrowLeft: () => Math.max(0, cursor - 1), ArrowDown: () => beside(1),
    ArrowUp: () => beside(-1), Home: () => 0, End: () => last,
  };
  return Object.hasOwn(ways, key) ? ways[key]() : undefined;
}

function legend() {
  const item = (text, className = "quiet") => made("li", text, className);
  const of = lanesText();
  const items = state.first < 0
    ? [item(`Held in ${of}:`), item("none", "gone"), ...SHADES.map((most, i) => item(`≤ ${most * 100} %`, `s${i + 1}`))]
    : [item(`Held in more of ${of} under`), item(view.policies[state.first], "a4"), item("or"), item(view.policies[state.second], "b4"),
      item("in neither", "gone")];
  if (view.hasEvidence) items.push(item("evidence", "evidence begins ends"));
  items.push(item("not there yet", "later"));
  if (state.attention && state.first < 0) {
    items.push(item(`attention in ${of}; strong: left`, "w"));
    items.at(-1).style.cssText = "--h-paid: 6px; --h-left: 3px";
  }
  at("legend").replaceChildren(...items);
}

function connect() {
  const options = (select, names) => names.forEach(([value, text]) => select.append(Object.assign(made("option", text), { value })));
  options(at("layer"), [[-1, "all"], ...Array.from({ length: view.layers }, (_, i) => [i, i])]);
  options(at("head"), [[-1, "all"], ...Array.from({ length: view.heads }, (_, i) => [i, i])]);
  options(at("first"), [[-1, "off"], ...view.policies.map((name, i) => [i, name])]);
  options(at("second"), view.policies.map((name, i) => [i, name]));
  at("first").disabled = view.policies.length < 2;
  view.policies.forEach((name, policy) => {
    const label = made("label", ` ${name}`), box = Object.assign(made("input"), { type: "checkbox", value: policy });
    label.prepend(box, " ", markOf(policy));
    label.title = view.params[policy];
    at("policies").append(label);
    box.addEventListener("change", () => {
      state.shown = view.policies.map((_, i) => i).filter((i) => (i === policy ? box.checked : state.shown.includes(i)));
      update(true);
      remember();
    });
  });
  at("budget").max = view.budgets.length - 1;
  at("cut").max = view.cuts.length - 1;
  at("cuts").hidden = view.cuts.length < 2;
  for (const name of CHOICES) {
    at(name).addEventListener("input", () => {
      state[name] = Number(at(name).value);
      if (name === "cut") state.step = view.cuts[state.cut].answering;
      update(["cut", "first", "second"].includes(name));
    });
    at(name).addEventListener("change", remember);
  }
  at("attention").addEventListener("change", () => { state.attention = at("attention").checked; update(false); remember(); });
  at("next").disabled = !view.hasEvidence;
  at("next").addEventListener("click", nextEvidence);

  const texts = at("texts"), unitAt = (event) => event.target.closest?.("[data-u]")?.dataset.u;
  texts.addEventListener("pointerover", (event) => { const unit = unitAt(event); if (unit !== undefined) go(Number(unit), false); });
  texts.addEventListener("click", (event) => { const unit = unitAt(event); if (unit !== undefined) ask(Number(unit)); });
  texts.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const to = moved(event.key);
    if (to !== undefined) { event.preventDefault(); go(to, true); }
    if (event.key === "Enter" && cursor >= 0) ask(cursor);
  });
  at("word").addEventListener("click", ({ target }) => { if (target.dataset.go) go(Number(target.dataset.go), true); });

  let waiting = false;
  addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  }, { passive: true });
  let width = innerWidth;
  addEventListener("resize", () => { const other = innerWidth !== width; width = innerWidth; update(other); });
  addEventListener("hashchange", () => { recall(); update(true); });
  addEventListener("beforeprint", () => { everything = true; draw(); });
  addEventListener("afterprint", () => { everything = false; draw(); });

  const name = () => { at("theme").textContent = isDark() ? "Light theme" : "Dark theme"; };
  at("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    name();
    update(false);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { name(); update(false); });
  name();
}

async function begin() {
  view = unpacked(await unpackedBytes());
  view.words = wordsOf();
  view.hasEvidence = view.units.some(({ flags }) => flags & EVIDENCE);
  at("about").textContent = `${view.model || "A model"} reads ${view.trace}: ${view.tokens.toLocaleString("en")} tokens, ` +
    `${view.layers} layers × ${view.heads} KV heads = ${view.lanes} lanes. A struck-out word is held by no lane.`;
  for (const id of ["settings", "bar", "texts", "dock"]) at(id).hidden = false;
  state.budget = (view.budgets.length - 1) >> 1;
  state.shown = view.policies.map((_, i) => i).slice(0, Math.max(2, Math.floor(innerWidth / 230)));
  state.step = view.cuts[0].answering;
  connect();
  recall();
  update(true);
  if (view.hasEvidence) nextEvidence();
  document.documentElement.dataset.ready = "1";
}

begin().catch((error) => { at("about").textContent = `This page cannot be drawn: ${error.message}`; throw error; });
