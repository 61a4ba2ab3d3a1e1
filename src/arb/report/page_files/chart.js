// Drawing: line charts with bands, a cursor and a legend, and rows of intervals. Text goes in as text, never as markup.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, ...children) {
  const made = attributes.svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "svg" || value === null || value === undefined) continue;
    if (key === "text") made.textContent = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

const drawn = (name, attributes = {}, ...children) => element(name, { svg: true, ...attributes }, ...children);

function dark() { return document.documentElement.dataset.theme === "dark"; }

function tone(colour) {
  if (!dark()) return colour;
  const parts = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return "#" + parts.map((part) => Math.round(part + (255 - part) * 0.3).toString(16).padStart(2, "0")).join("");
}

// ---- numbers --------------------------------------------------------------------------------------------------------

function number(value, percent = false) {
  if (value === null || value === undefined) return "—";
  if (percent) return `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)}%`;
  const size = Math.abs(value);
  if (size >= 10000) return value.toLocaleString("en", { maximumFractionDigits: 0 });
  return size >= 1 || size === 0 ? value.toFixed(1) : value.toPrecision(2);
}

function count(value, noun) { return `${value.toLocaleString("en")} ${noun}${value === 1 ? "" : "s"}`; }

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (size >= 1e3) return `${+(value / 1e3).toPrecision(3)}k`;
  return `${+value.toPrecision(3)}`;
}

function ticks(low, high, wanted) {
  const raw = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) found.push(i * step);
  return found;
}

function extent(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (!known.length) return [0, 1];
  let [low, high] = [Infinity, -Infinity];
  for (const value of known) { low = Math.min(low, value); high = Math.max(high, value); }
  return low === high ? [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1] : [low, high];
}

// ---- line charts ----------------------------------------------------------------------------------------------------

// plot: { label, xLabel, yLabel, series: [{ name, colour, dash, parts: [{ x, y, low, high }] }], percent, range, at,
//   squeeze: how much narrower x below zero is drawn, lines: [{ name, y }] across the chart }
function chart(plot, isHidden) {
  const holder = element("div", { class: "chart" });
  const tip = element("div", { class: "tip", role: "status", hidden: "" });
  let state = null;
  const draw = () => {
    const width = Math.max(240, holder.clientWidth || 340);
    state = layout(plot, plot.series.filter((one) => !isHidden(one.name)), width);
    const svg = painted(plot, state);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      show((event.clientX - box.left) * (state.width / box.width));
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") hide();
      if (!move || !state.xs.length) return;
      event.preventDefault();
      const here = state.cursor === null ? (move > 0 ? -1 : state.xs.length) : state.xs.indexOf(state.cursor);
      show(state.x(state.xs[Math.min(state.xs.length - 1, Math.max(0, here + move))]));
    });
    holder.replaceChildren(svg, tip);
    hide();
  };
  const hide = () => {
    tip.hidden = true;
    state.cursor = null;
    state.marks.replaceChildren();
  };
  const show = (left) => {
    if (!state.xs.length) return;
    const at = nearest(state.xs, state.x.back(left));
    const found = state.series.map((one) => [one, valueAt(one, at)]).filter(([, value]) => value);
    state.cursor = at;
    state.marks.replaceChildren(
      drawn("line", { class: "cursor", x1: state.x(at), x2: state.x(at), y1: state.top, y2: state.bottom }),
      ...found.map(([one, value]) =>
        drawn("circle", { cx: state.x(at), cy: state.y(value.y), r: 3.5, fill: tone(one.colour) })),
    );
    const lines = [...found].sort((a, b) => b[1].y - a[1].y).map(([one, value]) => {
      const around = value.low === null ? "" : ` ± ${number((value.high - value.low) / 2, plot.percent)}`;
      const dot = element("i");
      dot.style.background = tone(one.colour);
      return element("span", {}, dot, one.name,
        element("em", { text: number(value.y, plot.percent) + around }));
    });
    tip.replaceChildren(element("p", { text: plot.at(at) }), ...lines);
    tip.hidden = false;
    const scale = holder.clientWidth / state.width;
    const room = holder.clientWidth - tip.offsetWidth - 4;
    const right = state.x(at) * scale + 12;
    tip.style.left = `${Math.max(0, Math.min(right > room ? state.x(at) * scale - tip.offsetWidth - 12 : right, room))}px`;
  };
  return drawnToWidth(holder, draw);
}

// Draw again when the width changes; in the next frame, because drawing changes the height that is being observed.
function drawnToWidth(holder, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (holder.clientWidth !== width) { width = holder.clientWidth; requestAnimationFrame(draw); }
  }).observe(holder);
  return { holder, draw };
}

function layout(plot, series, width) {
  const height = Math.round(Math.min(360, Math.max(200, width * (width > 600 ? 0.36 : 0.62))));
  const [left, right, top, bottom] = [48, width - 10, 12, height - 40];
  const all = (key) => series.flatMap((one) => one.parts.flatMap((part) => part[key] || []));
  const [x0, x1] = extent(all("x"));
  let [y0, y1] = plot.range || extent([...all("y"), ...all("low"), ...all("high")]);
  if (!plot.range) { const margin = 0.06 * (y1 - y0); y0 -= margin; y1 += margin; }
  const squeeze = plot.squeeze || 1;
  const drawnAt = (value) => (value < 0 ? value / squeeze : value);
  const [d0, d1] = [drawnAt(x0), drawnAt(x1)];
  const x = (value) => left + ((drawnAt(value) - d0) / (d1 - d0)) * (right - left);
  x.back = (place) => {
    const value = d0 + ((place - left) / (right - left)) * (d1 - d0);
    return value < 0 ? value * squeeze : value;
  };
  const y = (value) => bottom - ((value - y0) / (y1 - y0)) * (bottom - top);
  const xs = [...new Set(all("x"))].sort((a, b) => a - b);
  return { width, height, left, right, top, bottom, x, y, x0, x1, y0, y1, xs, series, cursor: null, marks: drawn("g") };
}

let clips = 0;

function painted(plot, s) {
  const clip = `clip-${clips += 1}`;
  const svg = drawn("svg", { class: "plot", viewBox: `0 0 ${s.width} ${s.height}`, tabindex: 0, role: "img",
    "aria-label": `${plot.label}. Arrow keys move the cursor.` });
  for (const value of ticks(s.y0, s.y1, 4)) {
    svg.append(drawn("line", { class: "gridline", x1: s.left, x2: s.right, y1: s.y(value), y2: s.y(value) }),
      drawn("text", { x: s.left - 7, y: s.y(value) + 4, "text-anchor": "end",
        text: plot.percent ? number(value, true) : short(value) }));
  }
  svg.append(drawn("clipPath", { id: clip }, drawn("rect", { x: s.left, y: 2, width: s.right - s.left, height: s.bottom - 2 })));
  const wanted = Math.max(3, Math.floor(s.width / 90));
  const places = s.x0 < 0 && s.x1 > 0 ? [s.x0, ...ticks(0, s.x1, wanted)] : ticks(s.x0, s.x1, wanted);
  places.forEach((value, i) => svg.append(drawn("text", { x: s.x(value), y: s.bottom + 16, text: short(value),
    "text-anchor": i === 0 && value === s.x0 ? "start" : value === s.x1 ? "end" : "middle" })));
  if (plot.switchAt !== undefined && plot.switchAt > s.x0 && plot.switchAt < s.x1) {
    const at = s.x(plot.switchAt);
    svg.append(drawn("line", { class: "switch", x1: at, x2: at, y1: s.top, y2: s.bottom }));
  }
  svg.append(drawn("text", { class: "label", x: (s.left + s.right) / 2, y: s.height - 6, "text-anchor": "middle",
    text: plot.xLabel }),
    drawn("text", { class: "label", x: -(s.top + s.bottom) / 2, y: 11, "text-anchor": "middle",
      transform: "rotate(-90)", text: plot.yLabel }));
  for (const { name, y } of plot.lines || []) {
    svg.append(drawn("line", { class: "reference", x1: s.left, x2: s.right, y1: s.y(y), y2: s.y(y) }),
      drawn("text", { class: "label", x: s.left + 3, y: s.y(y) - 3, text: name }));
  }
  const curves = drawn("g", { "clip-path": `url(#${clip})` });
  for (const one of s.series) for (const part of one.parts) if (part.low) curves.append(band(s, one, part));
  for (const one of s.series) for (const part of one.parts) curves.append(...line(s, one, part));
  svg.append(curves, s.marks);
  return svg;
}

function band(s, one, part) {
  const known = part.x.map((x, i) => [x, part.low[i], part.high[i]]).filter((row) => row[1] !== null);
  const up = known.map(([x, , high]) => `${s.x(x).toFixed(1)},${s.y(high).toFixed(1)}`);
  const down = known.reverse().map(([x, low]) => `${s.x(x).toFixed(1)},${s.y(low).toFixed(1)}`);
  return drawn("polygon", { points: [...up, ...down].join(" "), fill: tone(one.colour), opacity: 0.13 });
}

function line(s, one, part) {
  const known = part.x.map((x, i) => [x, part.y[i]]).filter((row) => row[1] !== null);
  const points = known.map(([x, y]) => `${s.x(x).toFixed(1)},${s.y(y).toFixed(1)}`).join(" ");
  const found = [drawn("polyline", { points, fill: "none", stroke: tone(one.colour), "stroke-width": one.width || 2,
    "stroke-dasharray": one.dash || null, "stroke-linejoin": "round", "stroke-linecap": "round",
    "data-series": one.name })];
  if (known.length === 1) {
    found.push(drawn("circle", { cx: s.x(known[0][0]), cy: s.y(known[0][1]), r: 3, fill: tone(one.colour) }));
  }
  return found;
}

function nearest(sorted, wanted) {
  return sorted.reduce((best, value) => (Math.abs(value - wanted) < Math.abs(best - wanted) ? value : best), sorted[0]);
}

function valueAt(one, at) {
  for (let p = one.parts.length - 1; p >= 0; p -= 1) {
    const part = one.parts[p];
    const i = part.x.indexOf(at);
    if (i >= 0 && part.y[i] !== null) {
      return { y: part.y[i], low: part.low ? part.low[i] : null, high: part.high ? part.high[i] : null };
    }
  }
  return null;
}

// ---- intervals ------------------------------------------------------------------------------------------------------

// The width of the widest of some texts, in the font of charts.
function widest(texts) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `11px ${getComputedStyle(document.documentElement).getPropertyValue("--sans")}`;
  return Math.max(...texts.map((text) => pen.measureText(text).width));
}

// A text that is shortened in the middle until it fits.
function fitting(text, width) {
  for (let keep = text.length; keep > 4; keep -= 1) {
    const shown = keep === text.length ? text : `${text.slice(0, Math.ceil(keep / 2))}…${text.slice(-Math.floor(keep / 2))}`;
    if (widest([shown]) <= width) return shown;
  }
  return text.slice(0, 4);
}

// rows: [{ name, colour, value, low, high, dots: [{ name, value }] }]; a number without interval is a mark alone
function intervals(rows, { label, xLabel }) {
  const holder = element("div", { class: "chart" });
  const sign = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(1);
  const spelt = rows.map((row) => sign(row.value) + (row.low === null ? "" : ` [${sign(row.low)}, ${sign(row.high)}]`));
  const draw = () => {
    const [width, step] = [Math.max(300, holder.clientWidth || 520), 30];
    const names = rows.map((row) => fitting(row.name, width * 0.35));
    const left = widest(names) + 16; // names end before the bars begin
    const right = width - widest(spelt) - 14; // bars end before the numbers begin
    const height = rows.length * step + 46;
    const [low, high] = extent(rows.flatMap((row) => [0, row.value, row.low, row.high, ...row.dots.map((dot) => dot.value)]));
    const margin = 0.05 * (high - low);
    const x = (value) => left + ((value - low + margin) / (high - low + 2 * margin)) * (right - left);
    const svg = drawn("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
    for (const value of ticks(low - margin, high + margin, Math.max(2, (right - left) / 80))) {
      svg.append(drawn("line", { class: "gridline", x1: x(value), x2: x(value), y1: 4, y2: height - 40 }),
        drawn("text", { x: x(value), y: height - 25, "text-anchor": "middle", text: short(value) }));
    }
    svg.append(drawn("line", { class: "switch", x1: x(0), x2: x(0), y1: 4, y2: height - 40 }),
      drawn("text", { class: "label", x: width / 2, y: height - 6, "text-anchor": "middle", text: xLabel }));
    rows.forEach((row, i) => {
      const [at, fill] = [i * step + step / 2 + 4, tone(row.colour)];
      svg.append(drawn("text", { x: left - 12, y: at + 4, "text-anchor": "end", text: names[i] }));
      if (row.low !== null) {
        svg.append(drawn("rect", { class: "bar", x: x(row.low), y: at - 6, width: Math.max(1, x(row.high) - x(row.low)), height: 12, rx: 3,
          fill, opacity: 0.35 }));
      }
      svg.append(...row.dots.map((dot) => drawn("circle", { cx: x(dot.value), cy: at, r: 3, fill, opacity: 0.75 },
        drawn("title", { text: `${dot.name}: ${sign(dot.value)}` }))),
        drawn("rect", { x: x(row.value) - 1.5, y: at - 9, width: 3, height: 18, rx: 1, fill }),
        drawn("text", { class: "number", x: width, y: at + 4, "text-anchor": "end", text: spelt[i] }));
    });
    holder.replaceChildren(svg);
  };
  return drawnToWidth(holder, draw);
}
