// The page: sections made from the data in the script tag. Whatever comes from files is set as text, never as markup.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");
const hidden = new Set();
const redraws = [];
const look = Object.fromEntries(data.variants.map((variant) => [variant.name, variant]));

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
  main.append(made);
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

const legends = [];

function legend() {
  const holder = element("div", { class: "legend", role: "group", "aria-label": "Show or hide strategies" });
  const draw = () => {
    const focused = holder.contains(document.activeElement) ? document.activeElement.dataset.variant : null;
    holder.replaceChildren(...data.variants.map((variant) => element("button", {
      type: "button", "data-variant": variant.name, "aria-pressed": String(!hidden.has(variant.name)),
      onclick: () => {
        if (!hidden.delete(variant.name)) hidden.add(variant.name);
        for (const other of legends) other();
        redraw();
      },
    }, drawn("svg", { width: 22, height: 8, "aria-hidden": "true" }, drawn("line", { x1: 1, x2: 21, y1: 4, y2: 4,
      stroke: tone(variant.colour), "stroke-width": 3, "stroke-dasharray": variant.dash || null })), variant.name)));
    if (focused) [...holder.children].find((button) => button.dataset.variant === focused)?.focus();
  };
  legends.push(draw);
  redraws.push(draw);
  draw();
  return holder;
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
    element("ul", { class: "notes" }, ...(spec.rows.some((row) => row.entries.some((one) => one.best))
      ? [`Marked: ${spec.marked}.`] : []).concat(spec.notes).map((text) => element("li", { text }))));
}

function entry(item) {
  if (item.value === null) return element("td", { class: "dim", text: `—${item.mark}`, "data-value": "" });
  return element("td", { class: item.best ? "best" : null, "data-value": item.value },
    element(item.best ? "b" : "span", { text: item.text + item.mark }),
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
  document.getElementById("facts").append(...data.facts.map(([name, value]) =>
    element("div", {}, element("dt", { text: name }), element("dd", { text: value }))));
}

function scores() {
  const block = section("scores", "Scores", "One row per task, one column per strategy. The best of a row is marked; a " +
    "small difference between few seeds may be chance.");
  const holder = element("div");
  const show = (measure) => holder.replaceChildren(...data.tables.filter((one) => one.kind === measure).map(table));
  if (!data.measures.length) return block.append(element("p", { class: "note", text: "No run is finished yet." }));
  block.append(element("div", { class: "controls" },
    choice("What to show", data.measures.map((one) => [one.id, one.title]), data.measures[0].id, show)), holder);
  show(data.measures[0].id);
}

function differences() {
  const found = data.tables.filter((one) => one.kind === "paired");
  if (!found.length) return;
  section("paired", "Paired differences", "Strategies of one seed start from the same pre-trained agent, so a run is " +
    "compared with the baseline's run of the same seed. The area under the online curve decides.").append(...found.map(table));
}

function series(cell, parts) {
  const style = look[cell.variant];
  return { name: cell.variant, colour: style.colour, dash: style.dash, parts };
}

function charts(block, makePlot) {
  for (const agent of data.agents) {
    const made = [];
    for (const task of agent.tasks) {
      const cells = data.cells.filter((cell) => cell.agent === agent.id && cell.task === task);
      const plot = makePlot(cells, agent, task);
      if (plot && plot.series.length) made.push(place(plot, task, plot.sub));
    }
    if (made.length) block.append(agentHeading(agent), element("div", { class: "grid" }, ...made));
  }
}

function seedsOf(cells) {
  const counts = cells.map((cell) => cell.seeds);
  const [low, high] = [Math.min(...counts), Math.max(...counts)];
  const seeds = low === high ? count(low, "seed") : `${low} to ${high} seeds`;
  return cells.every((cell) => cell.finished) ? seeds : `${seeds}, not all finished`;
}

function curves() {
  const block = section("curves", "Learning curves", "Mean over seeds of the evaluations, with one sample standard " +
    "deviation. Left of the dotted line is pre-training, right of it fine-tuning. Hover, or use the arrow keys.");
  block.append(element("div", { class: "controls" }, legend()));
  charts(block, (cells, agent, task) => ({
    label: `Learning curves of ${agent.name} on ${task}`, sub: seedsOf(cells), yLabel: cells[0].unit,
    xLabel: "updates before the switch, steps after it", switchAt: 0,
    at: (x) => (x < 0 ? `${short(-x)} updates before the switch` : `online step ${x.toLocaleString("en")}`),
    series: cells.filter((cell) => cell.curve.length).map((cell) => series(cell, cell.curve)),
  }));
}

function aggregates() {
  if (!data.groups.length) return;
  const block = section("together", "Taken together", "Statistics over all runs of comparable tasks, with 95% bootstrap " +
    "intervals where every task has at least two seeds.");
  for (const group of data.groups) {
    const rows = (found) => found.map((row) => ({ ...row, ...{ colour: look[row.variant].colour, name: row.variant } }));
    const holder = element("div", { class: "grid wide" });
    const draw = () => {
      const made = Object.entries(group.aggregates).map(([name, found]) => element("article", { class: "card" },
        element("h3", { text: name }), element("p", { class: "sub", text: data.meanings[name] }),
        intervals(rows(found), { label: name })));
      if (group.improvements.length) {
        made.push(element("article", { class: "card" },
          element("h3", { text: `Probability that ${group.hero} scores above` }),
          element("p", { class: "sub", text: "in a run against a run on the same task" }),
          intervals(rows(group.improvements), { label: "Probability of improvement", range: [0, 1], middle: 0.5, digits: 2 })));
      }
      holder.replaceChildren(...made, profile);
    };
    const profile = place({
      label: "Performance profile", xLabel: group.normalised ? "normalised score τ" : "return τ", yLabel: "runs above τ",
      percent: true, range: [0, 1], interval: true, at: (x) => `τ = ${number(x)}`,
      series: group.profile.map((one) => series(one, [one])),
    }, "Performance profile", "share of runs above every score");
    redraws.push(draw);
    draw();
    block.append(element("h3", { class: "agent", text: `${group.agent}: ${group.name}` }),
      element("p", { class: "say", text: group.about }), holder);
  }
  block.append(element("details", {}, element("summary", { text: "The numbers as tables" }),
    ...data.tables.filter((one) => ["aggregate", "improvement"].includes(one.kind)).map(table)));
}

function replay() {
  const kinds = data.diagnostics;
  if (!kinds.length) return;
  const block = section("replay", "Replay", "What the batches were made of while fine-tuning, mean over seeds.");
  const saying = element("p", { class: "note" });
  const holder = element("div");
  let mine = [];
  const show = (id) => {
    const kind = kinds.find((one) => one.id === id);
    saying.textContent = kind.meaning;
    for (const old of mine) redraws.splice(redraws.indexOf(old), 1);
    const before = redraws.length;
    holder.replaceChildren();
    charts(holder, (cells, agent, task) => {
      const with_ = cells.filter((cell) => cell.metrics[id]);
      const found = with_.map((cell) => series(cell, [cell.metrics[id]]));
      const buffer = id === "online_share" && with_.find((cell) => cell.strategy !== "top_n" && cell.metrics.online_rows);
      if (buffer) {
        found.unshift({ name: "share of the buffer", colour: "#9aa3ad", width: 4, parts: [{ ...buffer.metrics.online_rows, low: null, high: null }] });
      }
      return { label: `${kind.title} of ${agent.name} on ${task}`, sub: cells.length ? seedsOf(cells) : "", series: found,
        xLabel: "environment steps", yLabel: kind.title, percent: kind.share, range: kind.share ? [0, 1] : null,
        at: (x) => `online step ${x.toLocaleString("en")}` };
    });
    mine = redraws.slice(before);
  };
  block.append(element("div", { class: "controls" },
    choice("Which figure", kinds.map((one) => [one.id, one.title]), kinds[0].id, show)),
    element("div", { class: "controls" }, legend()), saying, holder);
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
  const lacking = data.runs.filter((run) => run.status !== "done");
  const block = section("runs", "Runs", lacking.length
    ? `${lacking.length} of ${count(data.runs.length, "run")} ${lacking.length === 1 ? "is" : "are"} missing from the tables.`
    : data.runs.length === 1 ? "The run is finished." : "All runs are finished.");
  block.append(...data.damaged.map((text) => element("p", { class: "note", text })));
  const line = (run) => [
    element("td", { class: "lead-col code", text: run.folder }),
    element("td", { class: "lead-col" }, element("span", { class: `state ${run.status}`, text: run.status })),
    element("td", { class: "lead-col", text: run.what }), element("td", { class: "text", text: run.reason })];
  const head = ["folder", "status", "what", "reason"];
  if (lacking.length) block.append(element("div", { class: "card" }, plainTable("lacking", head, lacking.map(line))));
  block.append(element("details", {}, element("summary", { text: `All run folders: ${data.runs.length}` }),
    element("div", { class: "card" }, plainTable("runs", head, data.runs.map(line)))));
}

opening();
if (data.cells.length) { scores(); differences(); curves(); aggregates(); replay(); settings(); }
folders();
