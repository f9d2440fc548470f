// The pictures. Each is drawn when it comes into view, from the numbers that the page carries; all show one span of time.
"use strict";

const NS = 1e9;
const charts = new Map(); // name -> {draw, node, timed, drawn}
const shown = { range: null }; // seconds [from, to] that the pictures over time show; null: all
const narrow = matchMedia("(max-width: 700px)");
const PAPER_WIDTH = 680; // pixels: fits on A4 and on US Letter
const COLORS = 12;
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
let printing = false;
let pictures = null;

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function classColor(index) {
  return color(`c${index % COLORS}`);
}

function bins(grid) {
  return Array.from({ length: grid.bins }, (_, index) => ((index + 0.5) * grid.bin_ns) / NS);
}

function duration(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (ns >= size) return `${(ns / size).toPrecision(3)} ${unit}`;
  }
  return `${ns} ns`;
}

function digits(value) {
  return Number(value.toPrecision(value >= 100 ? 4 : 3));
}

// The unit in which the greatest value has at most four digits.
function byteUnit(greatest) {
  let power = 0;
  while (greatest >= 1024 ** (power + 1) && power < UNITS.length - 1) power += 1;
  return { name: UNITS[power], size: 1024 ** power };
}

function bytes(value) {
  const { name, size } = byteUnit(Math.abs(value));
  return `${digits(value / size)} ${name}`;
}

function byteRate(value) {
  return `${bytes(value)}/s`;
}

function greatest(rows) {
  return rows.reduce((most, row) => row.reduce((sofar, value) => Math.max(sofar, value), most), 0);
}

function isNarrow() {
  return printing || narrow.matches;
}

function escaped(text) {
  return String(text).replace(/[&<>]/g, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[letter]);
}

function short(text, length = 48) {
  const line = text.replace(/[\u0000-\u001f\u007f]/g, "\u00b7");
  return escaped(line.length > length ? "…" + line.slice(1 - length) : line);
}

// The margins of pictures over time are equal, so that their times stand one below the other.
function layout(name, more) {
  const axis = { gridcolor: color("line"), zerolinecolor: color("line"), automargin: !OVER_TIME(name) };
  const { xaxis, yaxis, ...others } = more;
  return {
    ...(printing ? { width: PAPER_WIDTH } : {}),
    paper_bgcolor: color("paper"),
    plot_bgcolor: color("paper"),
    font: { color: color("ink"), size: 12 },
    margin: { l: isNarrow() ? 105 : 240, r: 20, t: 34, b: 45 }, // the toolbar stands in the upper margin
    showlegend: false, // the key below the picture has the names
    hoverlabel: { namelength: -1 },
    ...others,
    xaxis: { ...axis, ...xaxis },
    yaxis: { ...axis, ...yaxis },
  };
}

function timeAxis() {
  const end = (pictures.heat.bins * pictures.heat.bin_ns) / NS;
  const range = shown.range || [0, end];
  return {
    title: { text: "time since the start" }, tickformat: "~s", ticksuffix: "s", tickangle: 0, nticks: isNarrow() ? 4 : 0,
    range, minallowed: 0, maxallowed: end,
  };
}

const BUTTONS = [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]];
const CONFIG = { displaylogo: false, responsive: true, modeBarButtons: BUTTONS };
const HEIGHT = 340;

function scale() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches && !printing;
  const steps = dark
    ? ["#14181c", "#1b3a57", "#1f4e79", "#3f8fd0", "#ffd166"]
    : ["#ffffff", "#d3e4f3", "#9ecae1", "#2171b5", "#08214a"];
  // Little is told apart from nothing, whatever the greatest value is.
  return steps.map((step, index) => [[0, 1e-9, 0.02, 0.25, 1][index], step]);
}

function heat(names, rows, words, grid) {
  const text = rows.map((row, index) => {
    const name = short(names[index], 120);
    return row.map((value) => `${name}<br>${words(value)}`);
  });
  return {
    type: "heatmap", x: bins(grid), y: names.map((_, index) => index), z: rows, colorscale: scale(), zsmooth: false,
    showscale: false, text, hovertemplate: "%{text}<br>%{x:.4s}s<extra></extra>",
  };
}

// The key below a picture: what its colours mean. A scale goes from nothing to the greatest value.
function scaleKey(lead, most) {
  return { lead, scale: most };
}

function linesKey(traces, lead = "") {
  const look = ({ line, marker }) => (line ? [line.color, line.dash || "solid"] : [marker.color, marker.symbol]);
  return { lead, entries: traces.map((trace) => [trace.name, ...look(trace)]) };
}

function element(tag, className, text = "") {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

const STROKES = { solid: "solid", dot: "dotted", dash: "dashed" };
const SYMBOLS = { circle: "●", cross: "✚" };

function drawKey(chart, keys) {
  chart.key.replaceChildren(...keys.map(({ lead, scale: most, entries }) => {
    const line = element("div", "keyline");
    if (lead) line.append(element("span", "lead", lead));
    if (most !== undefined) {
      const bar = element("span", "scale");
      bar.style.background = `linear-gradient(to right, ${scale().map(([place, hue]) => `${hue} ${100 * place}%`).join(", ")})`;
      line.append(element("span", "", "0"), bar, element("span", "most", most));
    }
    for (const [name, hue, form] of entries || []) {
      const look = element("span", "look", SYMBOLS[form] || "");
      if (SYMBOLS[form]) look.style.color = hue;
      else look.style.borderTop = `3px ${STROKES[form]} ${hue}`;
      const entry = element("span", "entry");
      entry.append(look, element("span", "name", name));
      line.append(entry);
    }
    return line;
  }));
}

function lanesAxis(names) {
  const length = isNarrow() ? 12 : 31;
  return { tickvals: names.map((_, index) => index), ticktext: names.map((name) => short(name, length)), autorange: "reversed" };
}

function choice(name) {
  const select = document.querySelector(`[data-for="${name}"]`);
  return select ? select.value : null;
}

function heatOf(kind, name) {
  const what = pictures[kind];
  const measure = choice(name) || "read";
  const perSecond = NS / pictures.heat.bin_ns;
  const busy = measure === "time_ns";
  const rows = what[measure].map((row) => row.map((value) => (busy ? value / pictures.heat.bin_ns : value * perSecond)));
  const used = rows.map((row, index) => index).filter((index) => rows[index].some((value) => value > 0));
  const names = used.map((index) => what.names[index]);
  if (!names.length) return null;
  const most = greatest(rows);
  const words = busy ? (value) => `${digits(value)} calls at once` : byteRate;
  return {
    data: [heat(names, used.map((index) => rows[index]), words, pictures.heat)],
    layout: { xaxis: timeAxis(), yaxis: lanesAxis(names), height: 100 + 22 * names.length },
    keys: [scaleKey(busy ? "calls at once, on average" : "bytes a second", busy ? `${digits(most)}` : byteRate(most))],
  };
}

function bandwidth() {
  const x = bins(pictures.heat);
  const perSecond = NS / pictures.heat.bin_ns;
  const { all, devices } = pictures;
  const most = greatest([all.read, all.written, ...devices.read, ...devices.written]) * perSecond;
  if (!most) return null;
  const unit = byteUnit(most);
  const data = [];
  const add = (name, values, dash) => data.push({
    type: "scatter", mode: "lines", name, x, y: values.map((value) => (value * perSecond) / unit.size),
    text: values.map((value) => byteRate(value * perSecond)),
    line: { color: classColor(data.length), dash, shape: "hvh", width: 1.5 }, hovertemplate: `${escaped(name)} %{text}<extra></extra>`,
  });
  add("read by calls and rings", all.read);
  add("written by calls and rings", all.written);
  devices.names.forEach((name, index) => {
    for (const [way, values] of [["read", devices.read[index]], ["written", devices.written[index]]]) {
      if (values.some((value) => value)) add(`${name} ${way}`, values, "dot");
    }
  });
  const title = { text: `${unit.name} a second` };
  return { data, layout: { meta: unit, xaxis: timeAxis(), yaxis: { title, rangemode: "tozero" }, hovermode: "x unified" }, keys: [linesKey(data)] };
}

function depth() {
  const x = bins(pictures.heat);
  const data = [];
  const add = (name, values, dash) => {
    if (!values.some((value) => value)) return;
    data.push({
      type: "scatter", mode: "lines", name, x, y: values, line: { color: classColor(data.length), dash, shape: "hvh", width: 1.5 },
      hovertemplate: `${escaped(name)} %{y:.3~r}<extra></extra>`,
    });
  };
  pictures.devices.names.forEach((name, index) => {
    add(`${name} in the device`, pictures.devices.served[index]);
    add(`${name} queued`, pictures.devices.queued[index], "dot");
  });
  pictures.rings.names.forEach((name, index) => add(`${name} in flight`, pictures.rings.in_flight[index], "dash"));
  return { data, layout: { xaxis: timeAxis(), yaxis: { rangemode: "tozero", title: { text: "requests at once" } }, hovermode: "x unified" }, keys: [linesKey(data)] };
}

function timeline() {
  const names = [...pictures.threads.names, ...pictures.devices.names.map((name) => `device ${name}`)];
  const wanted = choice("timeline");
  const rows = names.map(() => new Array(pictures.fine.bins).fill(0));
  for (const { thread, class: which, first, share } of pictures.threads.busy) {
    if (wanted !== "all" && pictures.classes[which] !== wanted) continue;
    share.forEach((value, index) => { rows[thread][first + index] += value; });
  }
  pictures.devices.busy.forEach((values, index) => { rows[pictures.threads.names.length + index] = values; });
  const used = names.map((_, index) => index).filter((index) => rows[index].some((value) => value > 0));
  const place = new Map(used.map((lane, index) => [lane, index]));
  const usedNames = used.map((lane) => names[lane]);
  if (!usedNames.length) return null;
  const words = (value) => (value > 1 ? `${digits(value)} at once` : `${digits(100 * value)} % of the time`);
  const longest = slices(wanted, place);
  const data = [{ ...heat(usedNames, used.map((lane) => rows[lane]), words, pictures.fine), zmin: 0, zmax: 1.5 }, ...longest];
  const keys = [scaleKey("share of the time in calls, or in the device", "all of it, by more than one at once")];
  if (longest.length) keys.push(linesKey(longest, "the longest calls, one by one:"));
  return { data, layout: { xaxis: timeAxis(), yaxis: lanesAxis(usedNames), height: 110 + 24 * used.length, hovermode: "closest" }, keys };
}

function slices(wanted, place) {
  const all = pictures.slices;
  return [...new Set(pictures.hues)].sort((one, other) => one - other).map((number) => {
    const hue = classColor(number);
    const trace = { type: "scatter", mode: "lines+markers", x: [], y: [], text: [], line: { color: hue, width: 5 }, marker: { size: 5, color: hue }, hovertemplate: "%{text}<extra></extra>", connectgaps: false };
    const names = new Set();
    all.thread.forEach((thread, index) => {
      const name = pictures.classes[all.class[index]];
      if (pictures.hues[all.class[index]] !== number || !place.has(thread) || (wanted !== "all" && wanted !== name)) return;
      names.add(name);
      const begin = all.begin_ns[index];
      const size = all.bytes[index] === null ? "" : `, ${bytes(all.bytes[index])}`;
      const error = all.error[index] ? `, errno ${Math.abs(all.error[index])}` : "";
      const words = `${escaped(all.call[index])} #${all.id[index]}: ${duration(all.duration_ns[index])}${size}${error}<br>${short(all.files[all.file[index]], 120)}`;
      trace.x.push(begin / NS, (begin + all.duration_ns[index]) / NS, null);
      trace.y.push(place.get(thread), place.get(thread), null);
      trace.text.push(words, words, "");
    });
    trace.name = [...names].join(", ");
    return trace;
  }).filter((trace) => trace.x.length);
}

function points(kind, name) {
  const index = Number(choice(name) || 0);
  const chosen = pictures[kind][index];
  if (!chosen) return null;
  const unit = byteUnit(greatest([chosen.offset_bytes]));
  const data = ["read", "written"].map((way, write) => {
    const rows = chosen.write.map((value, row) => row).filter((row) => chosen.write[row] === write);
    return {
      type: "scatter", mode: "markers", name: way, x: rows.map((row) => chosen.time_ns[row] / NS), y: rows.map((row) => chosen.offset_bytes[row] / unit.size),
      text: rows.map((row) => `${bytes(chosen.bytes[row])} at byte ${chosen.offset_bytes[row]}`), hovertemplate: "%{text}<br>%{x:.6s}s<extra></extra>",
      marker: { size: 4, color: classColor(write), symbol: write ? "cross" : "circle" },
    };
  }).filter((trace) => trace.x.length);
  const note = document.querySelector(`[data-note="${name}"]`);
  note.textContent = chosen.of > chosen.time_ns.length ? `a fair sample of ${chosen.time_ns.length} of ${chosen.of}` : `all ${chosen.of}`;
  return { data, layout: { xaxis: timeAxis(), yaxis: { title: { text: `offset in ${unit.name}` } }, hovermode: "closest" }, keys: [linesKey(data)] };
}

function latencyRow() {
  return pictures.latency.rows[Number(choice("latency") || 0)];
}

function latencyTicks(step = 4) {
  const edges = pictures.latency.edges_ns;
  const ticks = edges.map((_, index) => index).filter((index) => index % step === 0);
  return { tickvals: ticks.map((index) => index - 0.5), ticktext: ticks.map((index) => duration(Math.round(edges[index]))) };
}

function latencyHeat() {
  const row = latencyRow();
  if (!row) return null;
  const trace = heat(row.counts.map((_, index) => `from ${duration(pictures.latency.edges_ns[index])}`), row.counts, (value) => `${value} times`, pictures.heat);
  const keys = [scaleKey("how often", `${greatest(row.counts)} times`)];
  return { data: [trace], layout: { xaxis: timeAxis(), yaxis: latencyTicks(), height: 420 }, keys };
}

// Sums over the bins of time that are shown.
function latencyHistogram() {
  const row = latencyRow();
  if (!row) return null;
  const x = bins(pictures.heat);
  const [from, to] = shown.range || [0, Infinity];
  const inside = x.map((time) => time >= from && time <= to);
  const sums = row.counts.map((counts) => counts.reduce((sum, value, index) => sum + (inside[index] ? value : 0), 0));
  const text = sums.map((_, index) => `${duration(pictures.latency.edges_ns[index])} to ${duration(pictures.latency.edges_ns[index + 1])}`);
  const few = greatest([sums]) < 5 ? { dtick: 1 } : {}; // nothing happens half a time
  const data = [{ type: "bar", x: sums.map((_, index) => index), y: sums, text, textposition: "none", marker: { color: classColor(0) }, hovertemplate: "%{text}: %{y}<extra></extra>" }];
  return { data, keys: [], layout: { xaxis: { ...latencyTicks(isNarrow() ? 20 : 8), tickangle: 0, title: { text: "latency" } }, yaxis: { title: { text: "how often" }, tickformat: "~s", ...few }, bargap: 0.05 } };
}

const DRAW = {
  bandwidth, depth, timeline,
  "heat-processes": () => heatOf("processes", "heat-processes"),
  "heat-files": () => heatOf("files", "heat-files"),
  "file-points": () => points("file_points", "file-points"),
  "device-points": () => points("device_points", "device-points"),
  latency: latencyHeat,
  "latency-histogram": latencyHistogram,
};
const OVER_TIME = (name) => name !== "latency-histogram";

function draw(name) {
  const chart = charts.get(name);
  if (!chart || !pictures) return;
  const what = DRAW[name]();
  chart.node.style.minHeight = "0";
  if (!what || !what.data.length) {
    if (chart.drawn) Plotly.purge(chart.node);
    chart.drawn = false;
    chart.node.style.height = "auto";
    chart.node.textContent = "nothing of this kind was recorded";
    drawKey(chart, []);
    return;
  }
  if (!chart.drawn) chart.node.textContent = "";
  chart.node.style.height = `${what.layout.height || HEIGHT}px`;
  Plotly.react(chart.node, what.data, layout(name, what.layout), CONFIG);
  drawKey(chart, what.keys);
  if (!chart.drawn && OVER_TIME(name)) chart.node.on("plotly_relayout", (change) => zoomed(name, change));
  chart.drawn = true;
  chart.node.dataset.drawn = "yes";
}

function zoomed(name, change) {
  const from = change["xaxis.range[0]"];
  if (change["xaxis.autorange"]) setRange(null, name);
  else if (from !== undefined) setRange([from, change["xaxis.range[1]"]], name);
}

function setRange(range, by = null) {
  const end = (pictures.heat.bins * pictures.heat.bin_ns) / NS;
  shown.range = range && [Math.max(0, range[0]), Math.min(end, range[1])];
  document.getElementById("from").value = shown.range ? shown.range[0] : 0;
  document.getElementById("to").value = shown.range ? shown.range[1] : end;
  for (const [name, chart] of charts) {
    if (!chart.drawn || (name === by && range)) continue;
    if (!OVER_TIME(name)) draw(name);
    else Plotly.relayout(chart.node, { "xaxis.range": shown.range || [0, end] });
  }
}

function fill(name, entries) {
  const select = document.querySelector(`[data-for="${name}"]`);
  select.replaceChildren(...(entries.length ? entries : [["", "none"]]).map(([value, text]) => new Option(text, value)));
  select.disabled = !entries.length;
}

function fillChoices() {
  const used = new Set(pictures.threads.busy.map((row) => row.class));
  fill("timeline", [["all", "all"], ...pictures.classes.filter((_, which) => used.has(which)).map((name) => [name, name])]);
  for (const [name, kind] of [["file-points", "file_points"], ["device-points", "device_points"]]) {
    fill(name, pictures[kind].map((each, index) => [index, `${short(each.name, 80)} (${each.of})`]));
  }
  fill("latency", pictures.latency.rows.map((row, index) => [index, row.name]));
}

async function unpack(id) {
  const packed = document.getElementById(id).textContent.trim();
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

async function start() {
  const library = document.createElement("script");
  library.textContent = await unpack("plotly");
  document.head.append(library);
  pictures = JSON.parse(await unpack("pictures"));
  fillChoices();
  const watcher = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting && !charts.get(target.dataset.chart).drawn) draw(target.dataset.chart);
    }
  }, { rootMargin: "400px" });
  for (const node of document.querySelectorAll("[data-chart]")) {
    const key = element("div", "key");
    node.after(key);
    charts.set(node.dataset.chart, { node, key, drawn: false });
    watcher.observe(node);
  }
  for (const select of document.querySelectorAll("select[data-for]")) {
    select.addEventListener("change", () => {
      draw(select.dataset.for);
      if (select.dataset.for === "latency") draw("latency-histogram");
    });
  }
  const typed = () => setRange([Number(document.getElementById("from").value), Number(document.getElementById("to").value)]);
  document.getElementById("from").addEventListener("change", typed);
  document.getElementById("to").addEventListener("change", typed);
  document.getElementById("whole").addEventListener("click", () => setRange(null));
  setRange(null);
  const again = () => charts.forEach((chart, name) => chart.drawn && draw(name));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  narrow.addEventListener("change", again);
  const print = (begins) => {
    printing = begins;
    document.documentElement.classList.toggle("printing", begins); // paper is white
    charts.forEach((_, name) => draw(name));
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  document.documentElement.dataset.ready = "yes";
}

start();
