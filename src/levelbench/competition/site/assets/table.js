/* The ranking as a table, one page of it: the cells of a row, its interval bar, its badges, the sorting buttons. */
"use strict";
(function (board) {
  const { el, svg } = board;
  board.TITLES = {
    time: "Time to accuracy", cost: "Cost of training", samples: "Samples to the target", steps: "Steps to the target",
    energy: "Energy of training", latency: "Latency", throughput: "Throughput", inference_cost: "Cost of a million answers",
  };
  board.SHORT = { time: "Time", cost: "Cost", samples: "Samples", steps: "Steps", energy: "Energy", latency: "Latency",
    throughput: "Throughput", inference_cost: "Cost" };
  const OF_SCENARIO = ["latency", "throughput"];
  const SIGNED = { signed: "signed", unsigned: "unsigned", wrong: "wrong signature" };

  /* The column's title; of latency and throughput also which one. */
  board.titleOf = (payload, column) =>
    (OF_SCENARIO.includes(column) && payload.compared ? `${board.TITLES[column]} (${payload.compared})` : board.TITLES[column]);

  /* Header cells: key to sort by, class, text. */
  const heads = (state, payload) => [
    ...(board.ofTraining(state.column) ? [["", "pick", el("span", { class: "hidden" }, "Curve")]] : []),
    ["rank", "rank", "Rank"],
    ["entry", "entry", "Entry"],
    ["figure", "figure n", board.SHORT[state.column]],
    ["", "bar", "Interval"],
    ...(board.ofTraining(state.column) ? [["reached", "reached n", "Reached"]] : []),
    ...(payload.divided ? [["division", "division", "Division"]] : []),
    ["hardware", "hardware", "Hardware"],
    ["framework", "framework", "Framework"],
    ["date", "date", "Date"],
    ["", "code", "Code"],
    ["notes", "notes", "Notes"],
  ];

  board.sortChoices = (state, payload) => heads(state, payload).filter(([key]) => key);

  function headCell(state, key, kind, text, onsort) {
    if (!key) return el("th", { scope: "col", role: "columnheader", class: kind }, text);
    const [name, direction] = state.sort.split(":");
    const on = name === key;
    const down = direction === "desc";
    const mark = el("span", { "aria-hidden": "true", class: "mark" }, on ? (down ? "▼" : "▲") : "");
    const order = on ? (down ? "descending" : "ascending") : null;
    return el("th", { scope: "col", role: "columnheader", class: kind, "aria-sort": order },
      el("button", { type: "button", class: "by", onclick: () => onsort(key) }, text, mark));
  }

  /* The width of the bars' axis: all rows of the column, in logarithms. */
  board.barScale = function (rows) {
    let low = Infinity;
    let high = 0;
    for (const row of rows) {
      for (const value of [row.value, row.low, row.high]) {
        if (typeof value === "number" && value > 0 && Number.isFinite(value)) {
          low = Math.min(low, value);
          high = Math.max(high, value);
        }
      }
    }
    if (!(high > 0)) return () => null;
    const width = Math.log(high / low) || 1;
    return (value) => 4 + (92 * Math.log(Math.min(Math.max(value, low), high) / low)) / width;
  };

  function bar(row, scale) {
    if (row.value === null || !(row.value > 0)) return null;
    const at = scale(row.value);
    const parts = [svg("line", { class: "track", x1: 2, x2: 98, y1: 6, y2: 6 })];
    const ends = typeof row.low === "number" && typeof row.high === "number" && row.low > 0;
    if (ends) parts.push(svg("line", { class: "range", x1: scale(row.low), x2: scale(row.high), y1: 6, y2: 6 }));
    parts.push(svg("circle", { class: ends ? "point" : "point alone", cx: at, cy: 6, r: 3 }));
    return svg("svg", { viewBox: "0 0 100 12", class: "interval", "aria-hidden": "true", focusable: "false" }, ...parts);
  }

  function badges(entry) {
    const found = [];
    const add = (text, kind) => found.push(el("li", { class: `badge ${kind}` }, text));
    if (entry.errors) add(`${entry.errors} error${entry.errors > 1 ? "s" : ""}`, "bad");
    const kinds = { signed: "good", unsigned: "plain", wrong: "bad" };
    if (entry.signed !== "unsigned" || entry.machine) add(SIGNED[entry.signed], kinds[entry.signed]);
    if (entry.machine) add(`machine ${entry.machine}`, "plain");
    const ended = { "re-run: consistent": "good", "re-run: inconsistent": "bad" };
    if (entry.rerun) add(entry.rerun, `${ended[entry.rerun.split(",")[0]] || "open"} long`);
    if (entry.single_run) add("single run", "open");
    if (entry.warnings) add(`${entry.warnings} warning${entry.warnings > 1 ? "s" : ""}`, "open");
    if (entry.lint) add(`lint: ${entry.lint}`, "plain");
    if (entry.origin) add(entry.origin, "plain");
    return found.length ? el("ul", { class: "badges" }, ...found) : null;
  }

  /* "▲ 2": places won against the board's own target. */
  function movement([before, after]) {
    if (before === null || after === null) {
      if (before === after) return null;
      return el("span", { class: `move ${after === null ? "down" : "up"}` }, after === null ? "out" : "in");
    }
    if (before === after) return null;
    const won = before > after;
    const words = `${won ? "up" : "down"} ${Math.abs(before - after)} from rank ${before}`;
    return el("span", { class: `move ${won ? "up" : "down"}`, title: words },
      el("span", { "aria-hidden": "true" }, `${won ? "▲" : "▼"}\u00a0${Math.abs(before - after)}`),
      el("span", { class: "hidden" }, words));
  }

  /* The ranks that the tests leave open; "≈": not distinguishable from the one above. */
  function tested(row) {
    if (!row.ranks && !row.against) return null;
    const said = [row.ranks && `rank ${row.ranks} by the tests`, row.against].filter(Boolean).join("; ");
    const mark = row.against.startsWith("not ") ? "≈ " : "";
    return el("small", { class: "tested", title: said },
      el("span", { "aria-hidden": "true" }, mark + row.ranks.replace(" to ", "–")), el("span", { class: "hidden" }, said));
  }

  const cell = (kind, label, ...children) =>
    el("td", { role: "cell", class: kind, "data-label": label }, ...children);

  function figureCell(row) {
    const interval = /^(.*?)\s*(\[.*\])$/.exec(row.text);
    const value = el("b", {}, interval ? interval[1] : row.text || "–");
    return cell("figure n", "", value, interval ? el("small", { class: "range" }, interval[2]) : null);
  }

  function line(row, context) {
    const { payload, state, scale, root, picked, onpick } = context;
    const { entry } = row;
    const training = board.ofTraining(state.column);
    const rank = row.rank === null ? "–" : `${row.rank}${row.shared ? "=" : ""}`;
    const name = el("a", { href: root + board.inside(entry.page), class: "model" }, entry.model);
    const by = [entry.author, entry.organisation].filter((each, at, all) => each && all.indexOf(each) === at).join(", ");
    const said = [row.note, ...entry.doubts.split("\n")].filter(Boolean);
    const why = said.map((text) => el("small", { class: "why" }, text));
    const reached = entry.mode === "training" && entry.n ? `${row.reached}/${entry.n}` : "";
    const title = row.move ? null : entry.reached_text;
    const pick = training && entry.curve
      ? el("input", { type: "checkbox", "aria-label": `Curve of ${entry.model}, ${entry.author}`, checked: picked.has(entry.slug),
        title: picked.size >= board.SERIES && !picked.has(entry.slug) ? board.FULL : null,
        onchange: (event) => onpick(entry.slug, event.target.checked) }) : null;
    return el("tr", { role: "row", "data-slug": entry.slug },
      training ? cell("pick", "", pick) : null,
      cell("rank", "", rank, row.move ? movement(row.move) : tested(row)),
      el("th", { scope: "row", role: "rowheader", class: "entry" }, name, el("small", {}, by), ...why),
      figureCell(row),
      cell("bar", "", bar(row, scale)),
      training ? el("td", { role: "cell", class: "reached n", "data-label": "Reached", title }, reached) : null,
      payload.divided ? cell("division", "Division", entry.division) : null,
      cell("hardware", "Hardware", entry.hardware),
      cell("framework", "Framework", entry.framework),
      cell("date", "Date", board.date(entry.date) || entry.date),
      cell("code", "", entry.code_url ? codeLink(entry) : null),
      cell("notes", "", badges(entry)));
  }

  function codeLink(entry) {
    const link = board.outside(entry.code_url, "code");
    if (link.tagName === "A") link.setAttribute("aria-label", `Code of ${entry.model}, ${entry.author}`);
    return link;
  }

  /* Fill the table with one page of rows. */
  board.draw = function (table, rows, context) {
    const { payload, state, onsort } = context;
    const head = el("thead", { role: "rowgroup" }, el("tr", { role: "row" },
      ...heads(state, payload).map(([key, kind, text]) => headCell(state, key, kind, text, onsort))));
    const from = context.whole ? 0 : (Number(state.page) - 1) * board.PAGE;
    const body = el("tbody", { role: "rowgroup" });
    for (const row of rows.slice(from, context.whole ? rows.length : from + board.PAGE)) body.append(line(row, context));
    table.tHead.replaceWith(head);
    table.tBodies[0].replaceWith(body);
  };
})((window.levelbench = window.levelbench || {}));
