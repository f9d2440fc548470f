// The pictures. Each is drawn when it comes into view, from the numbers that the page carries; all show one span of time.
"use strict";

const NS = 1e9;
const charts = new Map(); // name -> {draw, node, timed, drawn}
const shown = { range: null }; // seconds [from, to] that the pictures over time show; null: all
let pictures = null;

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function classColor(index) {
  return color(`c${index % 7}`);
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

function escaped(text) {
  return String(text).replace(/[&<>]/g, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[letter]);
}

function short(text, length = 48) {
  const line = text.replace(/[\u0000-\u001f\u007f]/g, "\u00b7");
  return escaped(line.length > length ? "…" + line.slice(1 - length) : line);
}

function layout(more) {
  const axis = { gridcolor: color("line"), zerolinecolor: color("line"), automargin: true };
  const { xaxis, yaxis, ...others } = more;
  return {
    paper_bgcolor: color("paper"),
    plot_bgcolor: color("paper"),
    font: { color: color("ink"), size: 12 },
    margin: { l: 60, r: 20, t: 10, b: 45 },
    hoverlabel: { namelength: -1 },
    legend: { orientation: "h", y: 1.12 },
    ...others,
    xaxis: { ...axis, ...xaxis },
    yaxis: { ...axis, ...yaxis },
  };
}

function timeAxis() {
  const end = (pictures.heat.bins * pictures.heat.bin_ns) / NS;
  const range = shown.range || [0, end];
  return { title: { text: "time since the start" }, tickformat: "~s", ticksuffix: "s", range, minallowed: 0, maxallowed: end };
}

const BUTTONS = [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]];
const CONFIG = { displaylogo: false, responsive: true, modeBarButtons: BUTTONS };
const HEIGHT = 340;

function scale() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const steps = dark ? ["#14181c", "#1f4e79", "#3f8fd0", "#ffd166"] : ["#ffffff", "#9ecae1", "#2171b5", "#08214a"];
  // Little is told apart from nothing, whatever the greatest value is.
  return steps.map((step, index) => [[0, 0.02, 0.25, 1][index], step]);
}

function heat(names, rows, unit, grid, x = bins(grid)) {
  const label = names.map((name) => short(name));
  const format = unit.endsWith("at a time") ? ".3~r" : "~s"; // half a call is no 500 milli-calls
  return {
    type: "heatmap", x, y: label.map((_, index) => index), z: rows, colorscale: scale(), zsmooth: false,
    text: rows.map((row, index) => row.map(() => short(names[index], 120))),
    hovertemplate: `%{text}<br>%{x:.4s}s: %{z:${format === "~s" ? ".4s" : format}}${unit}<extra></extra>`,
    colorbar: { tickformat: format, ticksuffix: unit, thickness: 12, lenmode: "pixels", len: 200, y: 1, yanchor: "top" },
  };
}

function lanesAxis(names) {
  return { tickvals: names.map((_, index) => index), ticktext: names.map((name) => short(name, 40)), autorange: "reversed" };
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
  return {
    data: [heat(names, used.map((index) => rows[index]), busy ? " calls at a time" : "B/s", pictures.heat)],
    layout: { xaxis: timeAxis(), yaxis: lanesAxis(names), height: 140 + 22 * names.length },
  };
}

function bandwidth() {
  const x = bins(pictures.heat);
  const perSecond = NS / pictures.heat.bin_ns;
  const line = (name, values, index, dash) => ({
    type: "scatter", mode: "lines", name, x, y: values.map((value) => value * perSecond),
    line: { color: classColor(index), dash, shape: "hvh", width: 1.5 }, hovertemplate: `${name} %{y:.4s}B/s<extra></extra>`,
  });
  const data = [line("read by calls and rings", pictures.all.read, 0), line("written by calls and rings", pictures.all.written, 1)];
  pictures.devices.names.forEach((name, index) => {
    for (const [way, values, hue] of [["read", pictures.devices.read[index], 0], ["written", pictures.devices.written[index], 1]]) {
      if (values.some((value) => value)) data.push(line(`${short(name)} ${way}`, values, hue, "dot"));
    }
  });
  if (!data.some((each) => each.y.some((value) => value))) return null;
  return { data, layout: { xaxis: timeAxis(), yaxis: { tickformat: "~s", ticksuffix: "B/s", rangemode: "tozero" }, hovermode: "x unified" } };
}

function depth() {
  const x = bins(pictures.heat);
  const data = [];
  const add = (name, values, index, dash) => {
    if (!values.some((value) => value)) return;
    data.push({ type: "scatter", mode: "lines", name, x, y: values, line: { color: classColor(index), dash, shape: "hvh", width: 1.5 }, hovertemplate: `${name} %{y:.3~s}<extra></extra>` });
  };
  pictures.devices.names.forEach((name, index) => {
    add(`${short(name)} in the device`, pictures.devices.served[index], index);
    add(`${short(name)} queued`, pictures.devices.queued[index], index, "dot");
  });
  pictures.rings.names.forEach((name, index) => add(`${name} in flight`, pictures.rings.in_flight[index], index + 3, "dash"));
  return { data, layout: { xaxis: timeAxis(), yaxis: { rangemode: "tozero", title: { text: "requests at a time" } }, hovermode: "x unified" } };
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
  const data = [heat(usedNames, used.map((lane) => rows[lane]), " at a time", pictures.fine), ...slices(wanted, place)];
  data[0].zmin = 0;
  data[0].zmax = 1.5;
  return { data, layout: { xaxis: timeAxis(), yaxis: lanesAxis(usedNames), height: 160 + 24 * used.length, hovermode: "closest" } };
}

function slices(wanted, place) {
  const all = pictures.slices;
  return pictures.classes.map((name, which) => {
    const hue = classColor(pictures.hues[which]);
    const trace = { type: "scatter", mode: "lines+markers", name: `longest: ${name}`, x: [], y: [], text: [], line: { color: hue, width: 5 }, marker: { size: 5, color: hue }, hovertemplate: "%{text}<extra></extra>", connectgaps: false };
    all.thread.forEach((thread, index) => {
      if (all.class[index] !== which || !place.has(thread) || (wanted !== "all" && wanted !== name)) return;
      const begin = all.begin_ns[index];
      const size = all.bytes[index] === null ? "" : `, ${all.bytes[index]} B`;
      const error = all.error[index] ? `, errno ${Math.abs(all.error[index])}` : "";
      const words = `${all.call[index]} #${all.id[index]}: ${duration(all.duration_ns[index])}${size}${error}<br>${short(all.files[all.file[index]], 120)}`;
      trace.x.push(begin / NS, (begin + all.duration_ns[index]) / NS, null);
      trace.y.push(place.get(thread), place.get(thread), null);
      trace.text.push(words, words, "");
    });
    return trace;
  }).filter((trace) => trace.x.length);
}

function points(kind, name) {
  const index = Number(choice(name) || 0);
  const chosen = pictures[kind][index];
  if (!chosen) return null;
  const data = ["read", "written"].map((way, write) => {
    const rows = chosen.write.map((value, row) => row).filter((row) => chosen.write[row] === write);
    return {
      type: "scatter", mode: "markers", name: way, x: rows.map((row) => chosen.time_ns[row] / NS), y: rows.map((row) => chosen.offset_bytes[row]),
      text: rows.map((row) => `${chosen.bytes[row]} B at ${chosen.offset_bytes[row]}`), hovertemplate: "%{text}<br>%{x:.6s}s<extra></extra>",
      marker: { size: 4, color: classColor(write), symbol: write ? "cross" : "circle" },
    };
  }).filter((trace) => trace.x.length);
  const note = document.querySelector(`[data-note="${name}"]`);
  note.textContent = chosen.of > chosen.time_ns.length ? `a fair sample of ${chosen.time_ns.length} of ${chosen.of}` : `all ${chosen.of}`;
  return { data, layout: { showlegend: true, xaxis: timeAxis(), yaxis: { title: { text: "offset" }, tickformat: "~s", ticksuffix: "B" }, hovermode: "closest" } };
}

function latencyRow() {
  return pictures.latency.rows[Number(choice("latency") || 0)];
}

function latencyTicks() {
  const edges = pictures.latency.edges_ns;
  const ticks = edges.map((_, index) => index).filter((index) => index % 4 === 0);
  return { tickvals: ticks.map((index) => index - 0.5), ticktext: ticks.map((index) => duration(Math.round(edges[index]))) };
}

function latencyHeat() {
  const row = latencyRow();
  if (!row) return null;
  const trace = heat(row.counts.map((_, index) => `from ${duration(pictures.latency.edges_ns[index])}`), row.counts, "", pictures.heat);
  return { data: [trace], layout: { xaxis: timeAxis(), yaxis: latencyTicks(), height: 420 } };
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
  const data = [{ type: "bar", x: sums.map((_, index) => index), y: sums, text, textposition: "none", marker: { color: classColor(0) }, hovertemplate: "%{text}: %{y}<extra></extra>" }];
  return { data, layout: { xaxis: { ...latencyTicks(), title: { text: "latency" } }, yaxis: { title: { text: "how often" }, tickformat: "~s" }, bargap: 0.05 } };
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
    return;
  }
  if (!chart.drawn) chart.node.textContent = "";
  chart.node.style.height = `${what.layout.height || HEIGHT}px`;
  Plotly.react(chart.node, what.data, layout(what.layout), CONFIG);
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

async function unpack() {
  const packed = document.getElementById("pictures").textContent.trim();
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

async function start() {
  pictures = await unpack();
  fillChoices();
  const watcher = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting && !charts.get(target.dataset.chart).drawn) draw(target.dataset.chart);
    }
  }, { rootMargin: "400px" });
  for (const node of document.querySelectorAll("[data-chart]")) {
    charts.set(node.dataset.chart, { node, drawn: false });
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
  addEventListener("beforeprint", () => charts.forEach((_, name) => draw(name)));
  document.documentElement.dataset.ready = "yes";
}

start();
