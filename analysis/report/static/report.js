// Filters and sorting, curves, samples and differences of a page. Its tables stand without it.
// Names and values become text nodes only, never markup.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

/** Return an element with properties (`aria-*` and `data-*` as attributes) and children. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "for" || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

const labelled = (text, control) => make("label", { className: "control" }, `${text} `, control);
const choice = (options, act) =>
  make("select", { onchange: act }, ...options.map(([value, text]) => make("option", { value }, text)));
const button = (text, act, label = text) =>
  make("button", { type: "button", onclick: act, "aria-label": label }, text);
const shown = (value) =>
  value === null || value === undefined ? "" : typeof value !== "number" ? String(value)
    : Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));

// --- The table of runs: conditions such as `loss<0.3 gpu:A40 train.global_batch=64 word`.

const CONDITION = /^([\w. -]*?)(<=|>=|!=|<|>|=|:)(.*)$/;

/** Return a predicate on row numbers, or a text that says what is wrong with a condition. */
function parsed(words, columns) {
  const tests = [];
  for (const word of words.match(/(?:"[^"]*"|\S)+/g) ?? []) {
    const [, name, sign, right] = CONDITION.exec(word.replaceAll('"', "")) ?? [];
    if (sign === undefined) {
      const sought = word.replaceAll('"', "").toLowerCase();
      tests.push((n) => Object.values(columns).some((c) => shown(c[n]).toLowerCase().includes(sought)));
      continue;
    }
    const column = columns[name];
    if (!column) return `no column or key ${name}`;
    const number = right.trim() === "" ? NaN : Number(right);
    if (/[<>]/.test(sign) && Number.isNaN(number)) return `${word}: ${sign} needs a number`;
    tests.push((n) => {
      const value = column[n];
      if (sign === ":") return shown(value).toLowerCase().includes(right.toLowerCase());
      if (value === null) return sign === "!=";
      const numeric = value !== "" && !Number.isNaN(number) && !Number.isNaN(Number(value));
      const [a, b] = numeric ? [Number(value), number] : [String(value), right];
      if (sign === "=") return a === b;
      if (sign === "!=") return a !== b;
      if (!numeric) return false;
      return sign === "<" ? a < b : sign === ">" ? a > b : sign === "<=" ? a <= b : a >= b;
    });
  }
  return (n) => tests.every((test) => test(n));
}

// The numbers of the runs that the filter keeps, and who draws them.
let kept;
const watchers = [];

function exploreRuns(table) {
  const columns = { ...data.columns, ...data.keys };
  const rows = [...table.tBodies[0].rows];
  const order = rows.map((_, n) => n);
  const status = make("output", { role: "status" });

  function show() {
    const test = parsed(words.value, columns);
    const wrong = typeof test === "string";
    words.setAttribute("aria-invalid", wrong);
    kept = new Set();
    rows.forEach((row, n) => {
      const fits = facets.every(([name, list]) => !list.value || shown(columns[name]?.[n]) === list.value);
      row.hidden = wrong || !fits || !test(n);
      if (!row.hidden) kept.add(n);
    });
    status.textContent = wrong ? test : `${kept.size} of ${rows.length} runs`;
    watchers.forEach((draw) => draw());
  }

  const words = make("input", { type: "search", size: 42, oninput: show, spellcheck: false,
    placeholder: "loss<0.3 gpu:A40 train.global_batch=64" });
  const facet = (name) => choice([["", "all"],
    ...[...new Set(columns[name]?.map(shown))].filter(Boolean).sort().map((v) => [v, v])], show);
  const facets = ["state", "gpu"].map((name) => [name, facet(name)]);

  function sorted(name, head) {
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const values = columns[name];
    const empty = (value) => value === null || value === undefined || value === "";
    order.sort((a, b) => {
      const [x, y] = [values[a], values[b]];
      if (empty(x) || empty(y)) return empty(x) - empty(y) || a - b;
      const by = Number.isNaN(x - y) ? String(x).localeCompare(String(y)) : x - y;
      return (up ? by : -by) || a - b;
    });
    table.tBodies[0].append(...order.map((n) => rows[n]));
  }

  const sortable = (head, name) =>
    head.replaceChildren(button(head.textContent, () => sorted(name, head), `sort by ${name}`));
  [...table.tHead.rows[0].cells].forEach((head) => sortable(head, head.dataset.name));

  const added = choice([["", "a config key"], ...Object.keys(data.keys).map((k) => [k, k])], () => {
    const name = added.value;
    if (!name) return;
    const head = make("th", { scope: "col", "data-name": name }, name);
    table.tHead.rows[0].append(head);
    rows.forEach((row, n) => row.append(make("td", {}, shown(columns[name][n]))));
    sortable(head, name);
    added.selectedOptions[0].remove();
    added.value = "";
  });
  const several = facets.filter(([, list]) => list.length > 2);
  table.closest(".wide").before(make("div", { className: "controls", role: "search" },
    labelled("Filter", words), ...several.map(([name, list]) => labelled(name, list)),
    ...(added.length > 1 ? [labelled("Add a column", added)] : []), status));
  show();
}

// --- Two configs side by side.

function compareConfigs(place) {
  const options = data.columns.run.map((run, n) => [n, run]);
  const [a, b] = [choice(options, show), choice(options, show)];
  const found = make("div", { className: "wide", role: "status" });
  b.value = Math.min(1, options.length - 1);

  function show() {
    const differing = Object.entries(data.keys).filter(([, values]) => values[a.value] !== values[b.value]);
    const cells = differing.map(([name, values]) => make("tr", {}, make("th", { scope: "row" }, name),
      make("td", {}, shown(values[a.value])), make("td", {}, shown(values[b.value]))));
    const heads = ["key or fact", "A", "B"].map((head) => make("th", { scope: "col" }, head));
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...cells));
    found.replaceChildren(differing.length ? table : "These two differ in nothing that is recorded.");
  }
  place.append(make("div", { className: "controls" }, labelled("A", a), labelled("B", b)), found);
  show();
}

// --- Where the time of each run went, without the queue.

// More than there are purposes of time, so that no two share one; readable on white and on black.
const COLOURS = ["#1f77b4", "#e6730a", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#d65fb0", "#7f7f7f",
  "#a5a520", "#12a5b8", "#5b8ff9", "#b8860b", "#3d9970", "#c71585", "#6b5b95", "#808000"];
const MOST_BARS = 40;

function drawShares(place) {
  const purposes = [...new Set(data.time.flatMap(Object.keys))]
    .filter((name) => name.endsWith("_s") && !/^(wall|queue|.*_per)_s$/.test(name));
  const part = (name, n, share, ...words) => make("span", { title: words.join(": "),
    style: `flex-grow:${share};background:${COLOURS[n]}` });
  const key = purposes.map((name, n) => make("span", {}, part(name, n, 0), ` ${name.slice(0, -2)}`));
  const bars = data.time.slice(0, MOST_BARS).map((row) => [make("div", { title: row.run }, row.run),
    make("div", { className: "bar" }, ...purposes.map((name, n) =>
      part(name, n, row[name] ?? 0, name.slice(0, -2), `${shown(row[name])} s`)))]);
  place.append(make("div", { className: "key" }, ...key), ...bars.flat());
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", "shares of the time of each run without the queue");
}

// --- Curves.

const points = (curve, axis) => {
  const told = curve.x[axis];
  if (told === undefined) return undefined;
  return typeof told[0] === "string" ? points(curve, told[0]).map((x) => x * told[1]) : told;
};

/** Return an exponential moving average that is not biased towards its start. */
function smoothed(values, weight) {
  let [sum, share] = [0, 0];
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    share = weight * share + (1 - weight);
    return sum / share;
  });
}

// More curves at once would be unreadable.
const MOST_OVERLAID = 40;
// Pixels of a page of A4 between its margins.
const PAPER = 680;
// Of curves beyond the colours, which then begin again.
const DASHES = [[], [8, 4], [2, 3], [12, 3, 2, 3]];

/** Return a positive number rounded to one digit by a function such as `Math.floor`. */
function oneDigit(value, round) {
  const unit = 10 ** Math.floor(Math.log10(value));
  const digits = Number((value / unit).toPrecision(9)); // 0.3 / 0.1 is less than 3
  return Number((round(digits) * unit).toPrecision(1));
}

function exploreCurves(place) {
  const metrics = [...new Set(data.curves.flatMap((run) => Object.keys(run.curves)))];
  const metric = choice(metrics.map((name) => [name, name]), draw);
  const axis = choice(Object.entries(data.axes), draw);
  const logX = make("input", { type: "checkbox", onchange: draw });
  const logY = make("input", { type: "checkbox", onchange: draw });
  const weight = make("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: 0, oninput: draw });
  const hasMeans = data.curves.some((run) => run.mean);
  const which = choice([["means", "means of repeats"], ["runs", "runs"], ["all", "both"]], draw);
  const status = make("output", { role: "status" });
  const range = make("output", { role: "status" });
  const canvas = make("div", { className: "plot", role: "img" });
  let plot;
  let onPaper = false; // in its width and with dark ink

  function series() {
    const found = [];
    const fits = data.curves.filter((run) => (!kept || run.rows.some((n) => kept.has(n)))
      && (metric.value !== "loss" || { means: run.mean || run.alone, runs: !run.mean, all: true }[which.value]));
    const drawn = fits.slice(0, MOST_OVERLAID);
    drawn.forEach((run, number) => {
      const curve = run.curves[metric.value];
      const x = curve && points(curve, axis.value);
      if (!x) return;
      const inside = x.map((v, n) => n).filter((n) => (!logX.checked || x[n] > 0)
        && (!logY.checked || [curve.y, curve.low ?? [1]].every((c) => c[n] === undefined || c[n] > 0)));
      const take = (values) => inside.map((n) => values[n]);
      const colour = COLOURS[number % COLOURS.length];
      const w = Number(weight.value);
      const dash = DASHES[Math.floor(number / COLOURS.length) % DASHES.length];
      const own = { name: run.name, colour, dash, x: take(x), y: take(curve.y) };
      if (curve.low) Object.assign(own, { low: take(curve.low), high: take(curve.high) });
      found.push(w && !curve.low ? { ...own, smooth: smoothed(own.y, w) } : own);
    });
    return { found, lacking: drawn.length - found.length, hidden: fits.length - drawn.length };
  }

  function draw() {
    plot?.destroy();
    plot = undefined;
    const { found, lacking, hidden } = series();
    const [ink, line] = onPaper ? ["#1d2733", "#dfe5ec"] : ["--ink", "--line"].map((name) =>
      getComputedStyle(document.documentElement).getPropertyValue(name));
    const width = onPaper ? PAPER : canvas.clientWidth;
    const rows = [{ label: axis.value, value: (_, v) => shown(v) }];
    const [tables, bands, edges] = [[], [], {}];
    for (const run of found) {
      const columns = [run.x, run.y];
      const bare = { stroke: run.colour, dash: run.dash, spanGaps: true, points: { show: run.x.length < 3 },
        value: (_, v) => shown(v) };
      if (run.smooth) {
        rows.push({ ...bare, label: `${run.name}, as recorded`, stroke: `${run.colour}40` });
        rows.push({ ...bare, label: `${run.name}, smoothed by ${weight.value}`, width: 2 });
        columns.push(run.smooth);
      } else rows.push({ ...bare, label: run.name, width: run.low ? 2.5 : 1.5 });
      if (run.low) {
        const edge = { ...bare, stroke: `${run.colour}60`, width: 1, points: { show: false } };
        edges[rows.length - 1] = [rows.length, rows.length + 1];
        bands.push({ series: [rows.length + 1, rows.length], fill: `${run.colour}30` });
        rows.push({ ...edge, label: `${run.name}, low` }, { ...edge, label: `${run.name}, high` });
        columns.push(run.low, run.high);
      }
      tables.push(columns);
    }
    const smoothing = Number(weight.value) ? `; smoothed by ${weight.value}, as recorded in faint` : "";
    status.textContent = `${found.length} ${found.length === 1 ? "curve" : "curves"}${smoothing}`
      + (lacking ? `; ${lacking} have no ${metric.value} over ${axis.value}` : "")
      + (hidden ? `; ${hidden} more: filter the runs` : "");
    canvas.setAttribute("aria-label", `${metric.value} over ${data.axes[axis.value]}, ${status.textContent}`);
    if (!found.length) return;
    const side = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const values = (_, splits) => splits.map((v) => (v === null ? "" : shown(v)));
    plot = new uPlot({
      width, height: Math.max(260, Math.min(420, width * 0.55)),
      scales: { x: { time: false, distr: logX.checked ? 3 : 1 }, y: logY.checked
        ? { distr: 3, range: (_, low, high) => [oneDigit(low, Math.floor), oneDigit(high, Math.ceil)] } : {} },
      axes: [{ ...side, label: data.axes[axis.value], values }, { ...side, label: metric.value, values, size: 64 }],
      hooks: { setScale: [(u, key) => {
        if (key === "x") range.textContent = `x from ${shown(u.scales.x.min)} to ${shown(u.scales.x.max)}`;
      }], setSeries: [(u, n) => edges[n]?.forEach((edge) => u.setSeries(edge, { show: u.series[n].show }))] },
      series: rows, bands, focus: { alpha: 0.25 }, cursor: { drag: { x: true, y: true, uni: 30 }, focus: { prox: 16 } },
      legend: { live: true, markers: { dash: (u, n) => (u.series[n].dash.length ? "dashed" : "solid") } },
    }, tables.length > 1 ? uPlot.join(tables) : tables[0], canvas);
    const legend = canvas.querySelectorAll(".u-series");
    for (const edge of Object.values(edges).flat()) legend[edge].hidden = true;
    for (const head of canvas.querySelectorAll(".u-series th")) {
      Object.assign(head, { tabIndex: 0, onkeydown: (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); head.click(); }
      } });
      head.setAttribute("role", "button");
    }
  }

  /** Show the part of the x axis that begins and ends at two shares of the present one. */
  function zoom(from, to) {
    if (!plot) return;
    const { min, max } = plot.scales.x;
    const [first, last] = [plot.data[0][0], plot.data[0].at(-1)];
    const at = (share) => (logX.checked ? min * (max / min) ** share : min + (max - min) * share);
    plot.setScale("x", { min: Math.max(first, at(from)), max: Math.min(last, at(to)) });
  }
  place.append(make("div", { className: "controls" },
    labelled("Curve", metric), labelled("over", axis), ...(hasMeans ? [labelled("of", which)] : []),
    labelled("log x", logX), labelled("log y", logY), labelled("Smoothing", weight),
    make("span", { role: "group", "aria-label": "zoom" },
      button("+", () => zoom(0.25, 0.75), "zoom in"), button("\u2212", () => zoom(-0.5, 1.5), "zoom out"),
      button("all", () => plot?.setData(plot.data, true), "show all")), status, range), canvas);
  const losses = data.curves.flatMap((run) => run.curves.loss?.y ?? []);
  const [least, most] = losses.reduce(([low, high], y) => [Math.min(low, y), Math.max(high, y)], [Infinity, 0]);
  logY.checked = least > 0 && most > 3 * least;
  draw();
  watchers.push(draw);
  const print = (paper) => { onPaper = paper; draw(); };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  new ResizeObserver(() => plot && !onPaper && plot.width !== canvas.clientWidth
    && plot.setSize({ width: canvas.clientWidth, height: plot.height })).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

// --- Samples: a click picks an image; the last two of one noise are shown in turn.

function exploreSamples(place, images) {
  const large = make("img", {});
  const caption = make("figcaption", { role: "status" });
  const flicker = button("Flicker A | B", toggle);
  let [picked, current, timer] = [[], 0, 0];

  function show(number) {
    current = number;
    Object.assign(large, { src: picked[number].src, alt: picked[number].alt });
    caption.textContent = `${"AB"[number]}: ${large.alt}; ${picked[number].dataset.noise}`;
  }
  function pick(image) {
    const alike = picked.filter((one) => one !== image && one.dataset.noise === image.dataset.noise);
    picked = [...alike.slice(-1), image];
    for (const one of images) one.parentElement.setAttribute("aria-pressed", picked.includes(one));
    flicker.disabled = picked.length < 2;
    show(picked.length - 1);
  }
  function toggle() {
    if (timer) clearInterval(timer);
    timer = timer ? 0 : setInterval(() => show((current + 1) % picked.length), 600);
    flicker.setAttribute("aria-pressed", Boolean(timer));
  }
  for (const image of images) {
    const picks = button("", () => pick(image), image.alt);
    image.before(picks);
    picks.append(image);
  }
  place.append(make("div", { className: "controls" }, flicker,
    "Two images that differ by the weights alone: pick them above."), make("figure", { className: "viewer" }, large, caption));
  flicker.setAttribute("aria-pressed", false);
  const alike = images.filter((one) => one.dataset.noise === images[0].dataset.noise);
  const other = alike.findLast((one) => one.dataset.run !== images[0].dataset.run);
  for (const one of [other ?? alike[0], alike.findLast((image) => image.dataset.run === images[0].dataset.run)]) pick(one);
}

const runs = document.querySelector("#runs table");
const images = [...document.querySelectorAll(".samples img[data-run]")];
if (runs && runs.tBodies[0].rows.length > 1) exploreRuns(runs);
for (const [id, act, wanted, more] of [["configs", compareConfigs, data.columns.run.length > 1],
  ["shares", drawShares, data.time.length], ["curves-plot", exploreCurves, data.curves.length], ["viewer", exploreSamples, images.length > 1, images]]) {
  const place = document.getElementById(id);
  if (place && wanted) act(place, more);
}
