// The page: sections made from the data in the script tag. Whatever comes from files is set as text, never as markup.
"use strict";

const everything = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");
const holder = element("div");
const hidden = new Set();
let [data, look, redraws, legends] = [null, {}, [], []];

function redraw() { for (const draw of redraws) draw(); }

// ---- theme ----------------------------------------------------------------------------------------------------------

function remembered(value) {
  try {
    if (value) localStorage.setItem("arb-theme", value);
    return localStorage.getItem("arb-theme");
  } catch { return null; } // a page opened from a file may have no storage
}

function setTheme(theme) { document.documentElement.dataset.theme = theme; }

const system = matchMedia("(prefers-color-scheme: dark)");
setTheme(remembered() || (system.matches ? "dark" : "light"));
system.addEventListener("change", () => {
  if (!remembered()) { setTheme(system.matches ? "dark" : "light"); redraw(); }
});
document.getElementById("theme").addEventListener("click", () => {
  setTheme(dark() ? "light" : "dark");
  remembered(document.documentElement.dataset.theme);
  redraw();
});

// ---- parts ----------------------------------------------------------------------------------------------------------

function section(id, title, saying) {
  const made = element("section", { class: "block", id, "aria-labelledby": `${id}-title` },
    element("h2", { id: `${id}-title`, text: title }), element("p", { class: "say", text: saying }));
  holder.append(made);
  document.getElementById("nav").append(element("a", { href: `#${id}`, text: title }));
  return made;
}

function choice(label, options, chosen, onChoose) {
  const group = element("div", { class: "choice", role: "group", "aria-label": label });
  const buttons = options.map(([id, title]) => element("button", {
    type: "button", "data-choice": id, "aria-pressed": String(id === chosen), text: title,
    onclick: () => {
      for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.choice === id));
      onChoose(id);
    },
  }));
  group.append(...buttons);
  return group;
}

function legend() {
  const buttons = element("div", { class: "legend", role: "group", "aria-label": "Show or hide strategies" });
  const draw = () => {
    const focused = buttons.contains(document.activeElement) ? document.activeElement.dataset.variant : null;
    buttons.replaceChildren(...data.variants.map((variant) => element("button", {
      type: "button", "data-variant": variant.name, "aria-pressed": String(!hidden.has(variant.name)),
      onclick: () => {
        if (!hidden.delete(variant.name)) hidden.add(variant.name);
        for (const other of legends) other();
        redraw();
      },
    }, drawn("svg", { width: 22, height: 8, "aria-hidden": "true" }, drawn("line", { x1: 1, x2: 21, y1: 4, y2: 4,
      stroke: tone(variant.colour), "stroke-width": 3, "stroke-dasharray": variant.dash || null })), variant.name)));
    if (focused) [...buttons.children].find((button) => button.dataset.variant === focused)?.focus();
  };
  legends.push(draw);
  redraws.push(draw);
  draw();
  return buttons;
}

function agentHeading(agent) { return element("h3", { class: "agent", text: agent.name }); }

function place(plot, title, sub) {
  const made = chart(plot, (name) => hidden.has(name));
  redraws.push(made.draw);
  return element("article", { class: "card" }, element("h3", { text: title }),
    element("p", { class: "sub", text: sub }), made.holder);
}

// ---- tables ---------------------------------------------------------------------------------------------------------

function table(spec) {
  const lead = spec.corner.length;
  const body = element("tbody");
  for (const row of spec.rows) {
    const cells = row.labels.map((text) => element("td", { class: "lead-col", text, "data-value": text }));
    body.append(element("tr", {}, ...cells, ...row.entries.map(entry)));
  }
  const heads = [...spec.corner, ...spec.columns].map((name, column) => {
    const head = element("th", { scope: "col", class: column < lead ? "lead-col" : null, "aria-sort": "none" });
    head.append(element("button", { type: "button", text: name, onclick: () => sort(body, heads, column) }));
    return head;
  });
  const made = element("table", { "data-table": spec.name }, element("thead", {}, element("tr", {}, ...heads)), body);
  return element("div", { class: "card" }, element("h3", { text: spec.title }),
    element("div", { class: "scroll" }, made),
    element("ul", { class: "notes" }, ...(spec.bold ? [`Marked: ${spec.bold}.`] : []).concat(spec.notes).map((text) => element("li", { text }))));
}

function entry(item) {
  if (item.value === null) return element("td", { class: "dim", text: `—${item.mark}`, "data-value": "" });
  return element("td", { class: item.bold ? "bold" : null, "data-value": item.value },
    element(item.bold ? "b" : "span", { text: item.text + item.mark }),
    item.more ? element("span", { class: "more", text: item.more }) : null);
}

function sort(body, heads, column) {
  const falling = heads[column].getAttribute("aria-sort") !== "descending";
  heads.forEach((head, i) => head.setAttribute("aria-sort", i === column ? (falling ? "descending" : "ascending") : "none"));
  const value = (row) => row.children[column].dataset.value ?? row.children[column].textContent;
  const amount = (text) => Number(text.replaceAll(",", "").replace(/%$/, "")); // 1,200 and 12% are numbers too
  const numeric = [...body.children].every((row) => value(row) === "" || !Number.isNaN(amount(value(row))));
  const compare = (a, b) => {
    if (a === "" || b === "") return (a === "") - (b === ""); // cells without a number stay last
    const order = numeric ? amount(a) - amount(b) : a.localeCompare(b, "en", { numeric: true });
    return order * (falling ? -1 : 1);
  };
  body.append(...[...body.children].sort((a, b) => compare(value(a), value(b))));
}

function plainTable(name, corner, rows) {
  const body = element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row)));
  const heads = corner.map((title, column) => {
    const head = element("th", { scope: "col", class: "lead-col", "aria-sort": "none" });
    head.append(element("button", { type: "button", text: title, onclick: () => sort(body, heads, column) }));
    return head;
  });
  return element("div", { class: "scroll" },
    element("table", { "data-table": name }, element("thead", {}, element("tr", {}, ...heads)), body));
}

// ---- sections -------------------------------------------------------------------------------------------------------

function opening() {
  document.getElementById("subtitle").textContent = data.subtitle;
  document.getElementById("facts").replaceChildren(...data.facts.map(([name, value]) =>
    element("div", {}, element("dt", { text: name }), element("dd", { text: value }))));
}

function scores() {
  const block = section("scores", "Scores", "One row per dataset, one column per strategy: mean over seeds. Whether " +
    "strategies differ is decided by their paired differences below.");
  if (!data.measures.length) return block.append(element("p", { class: "note", text: "No run is finished yet." }));
  const shown = element("div");
  const show = (measure) => shown.replaceChildren(...data.tables.filter((one) => one.kind === measure).map(table));
  block.append(element("div", { class: "controls" },
    choice("What to show", data.measures.map((one) => [one.id, one.title]), data.measures[0].id, show)), shown);
  show(data.measures[0].id);
}

function differences() {
  const found = data.tables.filter((one) => one.kind === "paired");
  if (!found.length) return;
  const block = section("paired", "Paired differences", "Strategies of one seed start from the same pre-trained agent, so " +
    "a run is compared with the baseline's run of the same seed. The area under the online curve decides.");
  for (const one of data.differences) {
    const rows = one.rows.map((row) => ({ ...row, name: row.variant, colour: look[row.variant].colour }));
    const made = intervals(rows, { label: `Paired differences of ${one.agent}`, xLabel: "area under the online curve, points" });
    redraws.push(made.draw);
    const several = one.over === "datasets";
    block.append(element("div", { class: "card" }, element("h3", { text: `${one.agent}: difference to the baseline` }),
      element("p", { class: "sub", text: `Mean and 95% interval over ${one.over}${several ? "; a dot is a dataset" : ""}.` }),
      made.holder));
  }
  block.append(...found.map(table));
}

function series(group, parts) {
  const style = look[group.variant];
  return { name: group.variant, colour: style.colour, dash: style.dash, parts };
}

function charts(block, makePlot) {
  for (const agent of data.agents) {
    const made = [];
    for (const panel of data.panels.filter((one) => one.agent === agent.id)) {
      const plot = makePlot(panel, agent);
      if (plot.series.length) made.push(place(plot, panel.task, seedsOf(panel.groups)));
    }
    if (made.length) block.append(agentHeading(agent), element("div", { class: "grid" }, ...made));
  }
}

function seedsOf(groups) {
  const counts = groups.map((group) => group.seeds);
  const [low, high] = [Math.min(...counts), Math.max(...counts)];
  const seeds = low === high ? count(low, "seed") : `${low} to ${high} seeds`;
  return groups.every((group) => group.finished) ? seeds : `${seeds}, not all finished`;
}

function curves() {
  const block = section("curves", "Learning curves", "Mean over seeds of the evaluations, with one sample standard " +
    "deviation. Left of the dotted line is pre-training, right of it fine-tuning. Hover, or use the arrow keys.");
  block.append(element("div", { class: "controls" }, legend()));
  charts(block, (panel, agent) => ({
    label: `Learning curves of ${agent.name} on ${panel.task}`, yLabel: panel.unit, range: panel.range, lines: panel.lines,
    xLabel: "updates before the switch, steps after it", switchAt: 0, squeeze: panel.squeeze,
    at: (x) => (x < 0 ? `${short(-x)} updates before the switch` : `online step ${x.toLocaleString("en")}`),
    series: panel.groups.filter((group) => group.curve.length).map((group) => series(group, group.curve)),
  }));
}

function replay() {
  const kinds = data.metrics;
  if (!kinds.length) return;
  const block = section("replay", "Replay", "What the batches were made of while fine-tuning, mean over seeds.");
  const saying = element("p", { class: "note" });
  const shown = element("div");
  let mine = [];
  const show = (id) => {
    const kind = kinds.find((one) => one.id === id);
    saying.textContent = kind.meaning;
    for (const old of mine) redraws.splice(redraws.indexOf(old), 1);
    const before = redraws.length;
    shown.replaceChildren();
    charts(shown, (panel, agent) => {
      const found = panel.groups.filter((group) => group.metrics[id]).map((group) => series(group, [group.metrics[id]]));
      if (id === "online_share" && panel.buffer && found.length) {
        found.unshift({ name: "share of the buffer", colour: "#9aa3ad", width: 4, parts: [{ ...panel.buffer, low: null, high: null }] });
      }
      return { label: `${kind.title} of ${agent.name} on ${panel.task}`, series: found, xLabel: "environment steps",
        yLabel: kind.title, percent: kind.share, range: kind.share ? [0, 1] : null,
        at: (x) => `online step ${x.toLocaleString("en")}` };
    });
    mine = redraws.slice(before);
  };
  block.append(element("div", { class: "controls" },
    choice("Which metric", kinds.map((one) => [one.id, one.title]), kinds[0].id, show)),
    element("div", { class: "controls" }, legend()), saying, shown);
  show(kinds[0].id);
}

function settings() {
  const { differing, common, rows } = data.settings;
  const block = section("settings", "Settings", differing.length
    ? "The settings in which these runs differ; all others are the same everywhere."
    : "All runs have the same settings.");
  const card = element("div", { class: "card" });
  if (differing.length) {
    card.append(plainTable("settings", ["run", ...differing], rows.map((row) => row.map((text, i) =>
      element("td", { class: i ? "lead-col code" : "lead-col", text, "data-value": text })))));
  }
  card.append(element("details", {}, element("summary", { text: `All settings they share: ${common.length}` }),
    plainTable("shared-settings", ["setting", "value"], common.map(([name, value]) => [
      element("td", { class: "lead-col code", text: name }), element("td", { class: "text code", text: value })]))));
  for (const [title, corner, lines] of data.origins) {
    card.append(element("details", {}, element("summary", { text: title }), plainTable(title, corner,
      lines.map((line) => line.map((text, i) => element("td", { class: i ? "text code" : "lead-col", text }))))));
  }
  block.append(card);
}

function folders() {
  const missing = data.runs.filter((run) => run.status !== "done");
  const block = section("runs", "Runs", missing.length
    ? `${missing.length} of ${count(data.runs.length, "run")} ${missing.length === 1 ? "is" : "are"} missing from the tables.`
    : data.runs.length === 1 ? "The run is finished." : "All runs are finished.");
  block.append(...everything.unreadable.map((text) => element("p", { class: "note", text })));
  const line = (run) => [
    element("td", { class: "lead-col code", text: run.folder }),
    element("td", { class: "lead-col" }, element("span", { class: `state ${run.status}`, text: run.status })),
    element("td", { class: "lead-col", text: run.what }), element("td", { class: "text", text: run.reason })];
  const head = ["run", "status", "what", "reason"];
  if (missing.length) block.append(element("div", { class: "card" }, plainTable("missing", head, missing.map(line))));
  block.append(element("details", {}, element("summary", { text: `All runs: ${data.runs.length}` }),
    element("div", { class: "card" }, plainTable("runs", head, data.runs.map(line)))));
}

function show(chosen) {
  data = chosen;
  look = Object.fromEntries(data.variants.map((variant) => [variant.name, variant]));
  [redraws, legends] = [[], []];
  hidden.clear();
  holder.replaceChildren();
  document.getElementById("nav").replaceChildren();
  opening();
  if (data.panels.length) { scores(); differences(); curves(); replay(); settings(); }
  folders();
}

function archives() {
  const lines = everything.sections.map((one, i) => [
    element("td", { class: "lead-col" }, element("button", { type: "button", class: "link", text: one.name,
      onclick: () => { pick(i); document.getElementById("subtitle").scrollIntoView(); } })),
    element("td", { class: "lead-col", text: one.agents.map((agent) => agent.name).join(", ") }),
    ...one.facts.map(([, value]) => element("td", { class: "lead-col", text: value, "data-value": value }))]);
  const select = element("select", { "aria-label": "Archive", onchange: () => pick(select.selectedIndex) },
    ...everything.sections.map((one) => element("option", { text: one.name })));
  const pick = (i) => { select.selectedIndex = i; show(everything.sections[i]); };
  const head = ["archive", "agents", ...everything.sections[0].facts.map(([name]) => name)];
  document.querySelector(".brand").after(select);
  document.querySelector(".opening h1").after(element("div", { class: "card archives" }, plainTable("archives", head, lines)));
  const finished = everything.sections.map((one) => Number(one.facts[0][1]));
  pick(finished.indexOf(Math.max(...finished)));
}

main.append(holder);
if (everything.sections.length > 1) archives();
else show(everything.sections[0]);
