/* Elements, text and numbers: everything from an entry enters the page here, and only as text. */
"use strict";
(function (board) {
  const SVG = "http://www.w3.org/2000/svg";
  const UNITS = [["ns", 1e-9, 0], ["µs", 1e-6, 0.5e-6], ["ms", 1e-3, 0.5e-3], ["s", 1, 0.5], ["min", 60, 180], ["h", 3600, 10800]];

  /* Shows control and format characters, such as bidirectional overrides, as escapes. */
  board.clean = (text) =>
    String(text).replace(/[\t\n\r]/g, " ").replace(/\p{C}/gu, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);

  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children) {
      if (child === null || child === undefined) continue;
      element.append(child instanceof Node ? child : document.createTextNode(board.clean(child)));
    }
    return element;
  }

  board.el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
  board.svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

  /* A link only where the address is http or https; anything else is shown as text. */
  board.outside = function (address, text) {
    let parsed = null;
    try {
      parsed = new URL(address);
    } catch {
      return board.el("span", {}, address);
    }
    if (parsed.protocol !== "http:" && parsed.protocol !== "https:") return board.el("span", {}, address);
    return board.el("a", { href: parsed.href, rel: "noopener nofollow noreferrer" }, text);
  };

  /* A page of this site: never an address with a scheme or a way out of the folder. */
  board.inside = (page) => (/^(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_./-]*\.html$/.test(page) ? page : "#");

  function digits(value, count) {
    if (!Number.isFinite(value)) return "∞";
    const size = Math.abs(value);
    if (size && (size < 1e-6 || size >= 1e15)) return value.toExponential(count - 1).replace(/\.?0*e\+?/, "e");
    const decimals = value === 0 ? 0 : Math.max(0, Math.min(12, count - 1 - Math.floor(Math.log10(Math.abs(value)))));
    return value.toLocaleString("en-GB", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  }
  board.digits = digits;

  function clockTime(seconds) {
    const whole = Math.ceil(Number(seconds.toFixed(6))); // Less than a microsecond is noise, not another second.
    const two = (value) => String(value).padStart(2, "0");
    return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  }

  board.seconds = function (value, ceil) {
    if (!Number.isFinite(value)) return "never";
    if (ceil) return clockTime(value);
    let chosen = UNITS[0];
    for (const unit of UNITS) if (value >= unit[2]) chosen = unit;
    return `${digits(value / chosen[1], 3)} ${chosen[0]}`;
  };

  board.dollars = function (value, cents) {
    if (!Number.isFinite(value)) return "never";
    if (cents && value > 0 && value < 0.005) return "< $0.01";
    return `$${cents ? value.toFixed(2) : digits(value, value >= 100 ? 5 : 3)}`;
  };

  /* A round value of an axis: no digits that say nothing. */
  board.tick = function (value) {
    let chosen = UNITS[0];
    for (const unit of UNITS) if (value >= unit[1] * 0.999999) chosen = unit;
    return `${Number((value / chosen[1]).toPrecision(3))} ${chosen[0]}`;
  };

  /* A quality on its own scale; a share of one as per cent where it is an accuracy. */
  board.quality = function (value, target, decimals) {
    const share = target.low === 0 && target.high === 1 && /acc|top/i.test(target.metric);
    const places = decimals === undefined ? 1 : decimals;
    if (places < 0) return share ? `${Number((100 * value).toPrecision(4))} %` : String(Number(value.toPrecision(4)));
    return share ? `${(100 * value).toFixed(places)} %` : value.toFixed(target.high === 1 ? places + 2 : places);
  };

  board.date = (text) => (/^\d{4}-\d{2}-\d{2}/.test(text || "") ? text.slice(0, 10) : "");
})((window.levelbench = window.levelbench || {}));
/* The ranking at another target, from the runs' steps and by the board's rule; never reached counts as infinite.
 *
 * The same function also ranks at the board's own target, so that changes of place compare like with like. */
"use strict";
(function (board) {
  /* Seconds until one run first reached the threshold; steps are its running best in order. */
  function crossing(steps, threshold, lower) {
    let from = 0;
    let to = steps.length >> 1;
    const count = to;
    while (from < to) {
      const middle = (from + to) >> 1;
      const quality = steps[2 * middle];
      if (lower ? quality <= threshold : quality >= threshold) to = middle;
      else from = middle + 1;
    }
    return from < count ? steps[2 * from + 1] : Infinity;
  }

  /* One figure of all runs' times (Infinity: never), by the rule of the board; the same as the build's own. */
  const AGGREGATIONS = {
    "first-run": (times) => times[0],
    median: (times, rules) => middle(bests(times, rules.best_of || 1), "mean"),
    olympic: (times, rules) => {
      if (!rules.windows || times.length <= rules.runs) return trimmed(times, rules.drop);
      const windows = times.slice(rules.runs - 1).map((_, at) => trimmed(times.slice(at, at + rules.runs), rules.drop));
      return middle(windows, rules.windows);
    },
  };

  /* Of each so many times after another the least. */
  function bests(times, count) {
    return times.filter((_, at) => at % count === 0).map((_, at) => Math.min(...times.slice(at * count, (at + 1) * count)));
  }

  /* The median; which of the two in the middle counts where their number is even, or their mean. */
  function middle(values, even) {
    const sorted = values.slice().sort((a, b) => a - b);
    const lower = sorted[(sorted.length - 1) >> 1];
    const upper = sorted[sorted.length >> 1];
    return { lower, upper, mean: (lower + upper) / 2 }[even];
  }

  function trimmed(times, drop) {
    const kept = times.slice().sort((a, b) => a - b).slice(drop, times.length - drop);
    return kept.length ? kept.reduce((sum, each) => sum + each, 0) / kept.length : Infinity;
  }

  /* Ranks at the board's own target, computed once per column, to show what moved. */
  board.ranksBefore = function (payload, column) {
    payload.before = payload.before || new Map();
    if (!payload.before.has(column)) {
      payload.before.set(column, board.ranksWithin(payload.entries, board.valuesAt(payload, payload.target.threshold, column)));
    }
    return payload.before.get(column);
  };

  board.timeAt = function (steps, threshold, lower, ruleset) {
    if (!steps.length) return Infinity;
    const times = steps.map((run) => crossing(run, threshold, lower));
    return AGGREGATIONS[ruleset.aggregation_rule](times, ruleset);
  };
  board.reachedAt = (steps, threshold, lower) =>
    steps.filter((run) => Number.isFinite(crossing(run, threshold, lower))).length;

  /* Rank of each value, 1 for the smallest; equal values share one; null without a value. As in the build, no worse value
   * stands before a better one; but only the build tests differences, since the page has only the steps of
   * the runs. */
  board.ranks = function (values) {
    const known = Float64Array.from(values.filter(Number.isFinite)).sort();
    const first = new Map();
    for (let at = known.length - 1; at >= 0; at -= 1) first.set(known[at], at + 1);
    return values.map((value) => (Number.isFinite(value) ? first.get(value) : null));
  };

  /* The ranks of entries within their divisions, as the build has them. */
  board.ranksWithin = function (entries, values) {
    const found = new Array(values.length).fill(null);
    for (const division of new Set(entries.map((entry) => entry.division))) {
      const own = board.ranks(values.map((value, at) => (entries[at].division === division ? value : null)));
      for (const [at, rank] of own.entries()) if (rank !== null) found[at] = rank;
    }
    return found;
  };

  /* Each entry's figure at a target: time in seconds, or dollars where the column is cost. */
  board.valuesAt = function (payload, threshold, column) {
    const { entries, target, ruleset } = payload;
    const lower = target.direction === "lower";
    return entries.map((entry) => {
      // What has too few runs for a test has no rank at any target.
      if (!entry.steps.length || (ruleset.by_test && entry.steps.length < 3 * (ruleset.best_of || 1))) return null;
      const time = board.timeAt(entry.steps, threshold, lower, ruleset);
      if (column === "time") return time;
      return typeof entry.usd === "number" ? (time * entry.usd) / 3600 : null;
    });
  };

  /* The targets worth asking about: the best that anyone reached, and three times as far on the easy side. */
  board.targetRange = function (payload) {
    const { target, reach } = payload;
    const lower = target.direction === "lower";
    const best = lower ? Math.min(target.threshold, reach) : Math.max(target.threshold, reach);
    const span = Math.abs(best - target.threshold) || 0.05 * (Math.abs(target.threshold) || 1);
    const easy = lower ? target.threshold + 3 * span : Math.max(target.low, target.threshold - 3 * span);
    return lower ? [best, easy] : [easy, best];
  };
})((window.levelbench = window.levelbench || {}));
/* Turns the columns of the board's data into entries, and loads the runs' steps on demand.
 *
 * An entry is an index into the columns and reads its fields lazily, since few of ten thousand entries are shown. The
 * steps of a run are one flat array that alternates quality and seconds; a run without steps never arrives. */
"use strict";
(function (board) {
  const NONE = Object.freeze([]);
  const CODED = ["model", "author", "organisation", "framework", "hardware", "date", "division", "mode", "signed", "reached_text", "lint", "machine", "rerun", "origin", "doubts"];

  const PLAIN = {
    slug: "slug", id: "id", code_url: "code_url", n: "n", reached: "reached", single_run: "single_run",
    usd: "usd_per_hour", errors: "errors", warnings: "warnings", curve: "curve",
  };

  /* A text that is stored as a number. */
  const textAt = ([texts, coded], at) => texts[coded[at]];

  /* Where each entry's figure is in the column, -1 for those that have none. */
  function placesOf(column, count) {
    if (!column.at) return Int32Array.from({ length: count }, (_, at) => at);
    const found = new Int32Array(count).fill(-1);
    column.at.forEach((at, place) => {
      found[at] = place;
    });
    return found;
  }

  /* What all entries of a board have in common: where their fields are. */
  function kindOf(columns, divisions) {
    const places = new Map(Object.entries(columns.figures).map(([name, each]) => [name, placesOf(each, columns.slug.length)]));
    class Entry {
      constructor(at) {
        this.at = at;
        this.steps = NONE;
        this.haystack = "";
      }
      get page() {
        return `entries/${this.slug}.html`;
      }
      /* The place of its division on the board. */
      get place() {
        return divisions.indexOf(this.division);
      }
      has(name) {
        return places.has(name) && places.get(name)[this.at] >= 0;
      }
      /* The entry's figure in a column that it has one in. */
      figure(name) {
        const column = columns.figures[name];
        const at = places.get(name)[this.at];
        return { value: column.value[at], low: column.low[at], high: column.high[at], rank: column.rank[at],
          shared: column.shared[at], text: column.text[at], note: textAt(column.note, at),
          ranks: textAt(column.ranks, at), against: textAt(column.against, at) };
      }
    }
    const define = (name, get) => Object.defineProperty(Entry.prototype, name, { get });
    for (const [name, column] of Object.entries(PLAIN)) {
      const values = columns[column];
      define(name, function () { return values[this.at]; });
    }
    for (const name of CODED) {
      const [texts, coded] = columns[name];
      define(name, function () { return texts[coded[this.at]]; });
    }
    return Entry;
  }

  board.unpack = function (payload) {
    const { columns } = payload;
    const Entry = kindOf(columns, payload.divisions);
    const entries = columns.slug.map((_, at) => new Entry(at));
    payload.entries = entries;
    payload.divided = columns.division[0].length > 1;
    if (payload.runs) board.take(payload, payload.runs);
    return payload;
  };

  /* Give the entries their steps. */
  board.take = function (payload, runs) {
    payload.entries.forEach((entry, at) => {
      entry.steps = runs[at] || NONE;
    });
    payload.whole = true;
  };

  let waiting = null;
  board.steps = (runs) => waiting && waiting(runs);

  /* Ask for the steps' own script, once; `done` hears when they are there. */
  board.fetchSteps = function (payload, root, done) {
    if (payload.whole || waiting || !/^data\/(?!.*\.\.)[A-Za-z0-9_.-]+\.js$/.test(payload.steps || "")) return;
    waiting = function (runs) {
      board.take(payload, runs);
      done();
    };
    document.head.append(board.el("script", { src: root + payload.steps, async: true }));
  };
})((window.levelbench = window.levelbench || {}));
/* The view: column, filters, sorting, target, page and chosen curves. The address's fragment is the only state, so that a
 * view can be linked; parts at their default are left out. */
"use strict";
(function (board) {
  const COLUMNS = ["time", "cost", "samples", "steps", "energy", "latency", "throughput", "inference_cost"];
  const DEFAULTS = {
    column: "", q: "", framework: "", hardware: "", division: "", signed: "", runs: "", from: "", to: "",
    sort: "rank", target: "", page: "1", curves: "",
  };
  board.COLUMNS = COLUMNS;
  board.PAGE = 100;
  board.ofTraining = (column) => ["time", "cost", "samples", "steps", "energy"].includes(column);
  /* Columns that the steps of the runs give at another target as well. */
  board.movable = (payload, column) => typeof payload.reach === "number" && (column === "time" || column === "cost");
  board.moreIsBetter = (column) => column === "throughput";

  board.parse = function (fragment) {
    const state = { ...DEFAULTS };
    for (const [name, value] of new URLSearchParams(fragment.replace(/^#/, ""))) {
      if (Object.hasOwn(DEFAULTS, name)) state[name] = value.slice(0, 2000);
    }
    return state;
  };

  board.format = function (state) {
    const kept = new URLSearchParams();
    for (const name of Object.keys(DEFAULTS)) if (state[name] !== DEFAULTS[name]) kept.set(name, state[name]);
    return kept.toString();
  };

  const fold = (text) => String(text || "").toLowerCase();
  const haystack = (entry) =>
    fold([entry.model, entry.author, entry.organisation, entry.hardware, entry.framework, entry.id].join("\n"));

  /* Does an entry pass? Made once for a state, so that the words are folded once. */
  board.filter = function (state) {
    const words = fold(state.q).split(/\s+/).filter(Boolean);
    const hardware = fold(state.hardware);
    const tests = [];
    if (words.length) {
      tests.push((entry) => {
        entry.haystack = entry.haystack || haystack(entry);
        return words.every((word) => entry.haystack.includes(word));
      });
    }
    if (state.framework) tests.push((entry) => entry.framework === state.framework);
    if (hardware) tests.push((entry) => fold(entry.hardware).includes(hardware));
    if (state.division) tests.push((entry) => entry.division === state.division);
    if (state.signed) tests.push((entry) => entry.signed === state.signed);
    if (state.runs) tests.push((entry) => entry.n >= 3);
    if (state.from) tests.push((entry) => board.date(entry.date) >= state.from);
    if (state.to) tests.push((entry) => board.date(entry.date) <= state.to && board.date(entry.date) !== "");
    return (entry) => tests.every((test) => test(entry));
  };

  /* Keys to sort by; null sorts last in both directions. */
  const KEYS = {
    // Divisions are ranked separately, one after the other.
    rank: (row) => (row.rank === null ? null : row.rank + 1e7 * row.entry.place),
    figure: (row) => row.value,
    reached: (row) => (row.entry.n ? row.reached / row.entry.n : null),
    entry: (row) => row.entry.model,
    author: (row) => row.entry.author,
    hardware: (row) => row.entry.hardware,
    framework: (row) => row.entry.framework,
    division: (row) => row.entry.division,
    date: (row) => row.entry.date,
    notes: (row) => row.entry.errors * 1000 + row.entry.warnings,
  };
  board.sortable = (name) => Object.hasOwn(KEYS, name);

  const TEXTS = { entry: fold, author: fold, hardware: fold, framework: fold, division: fold, date: (text) => board.date(text) || null };

  /* Each distinct text's place in the order: few texts are compared, and then only numbers. */
  function places(keys, folded) {
    const known = new Map();
    for (const key of keys) if (!known.has(key)) known.set(key, folded(key));
    const order = [...new Set(known.values())].filter((text) => text !== null).sort();
    const place = new Map(order.map((text, at) => [text, at]));
    return (key) => place.get(known.get(key)) ?? NaN;
  }

  /* A column of numbers to sort by; what has none is NaN. */
  function column(rows, name) {
    const keys = rows.map(KEYS[name] || KEYS.rank);
    const number = TEXTS[name] ? places(keys, TEXTS[name]) : (key) => key ?? NaN;
    return Float64Array.from(keys, number);
  }

  board.sort = function (rows, state) {
    const [name, direction] = state.sort.split(":");
    const sign = direction === "desc" ? -1 : 1;
    const last = (values, signed) => values.map((value) => (Number.isNaN(value) ? Infinity : signed * value));
    const keys = last(column(rows, name), sign);
    const ranks = last(column(rows, "rank"), 1);
    const values = last(column(rows, "figure"), board.moreIsBetter(state.column) ? -1 : 1);
    const order = Uint32Array.from(rows, (_, at) => at);
    // Infinity minus itself is NaN, which counts as no difference.
    const by = (one, a, b) => (one[a] < one[b] ? -1 : one[a] > one[b] ? 1 : 0);
    order.sort((a, b) => by(keys, a, b) || by(ranks, a, b) || by(values, a, b) || rows[a].at - rows[b].at);
    return Array.from(order, (at) => rows[at]);
  };

  /* The rows of a column, with what moved where the target is not the board's own. */
  board.rows = function (payload, state) {
    const { entries, target } = payload;
    const column = state.column;
    const asked = Number(state.target);
    const moved = payload.whole && state.target !== "" && Number.isFinite(asked) && board.movable(payload, column);
    if (!moved) {
      return entries.map((entry, at) => {
        const figure = entry.has(column) ? entry.figure(column) : {};
        const value = typeof figure.value === "number" ? figure.value : null;
        return { entry, at, value, low: figure.low, high: figure.high, rank: figure.rank ?? null, shared: figure.shared,
          text: figure.text || "", note: figure.note || "", ranks: figure.ranks || "", against: figure.against || "",
          reached: entry.reached, move: null };
      });
    }
    const before = board.ranksBefore(payload, column);
    const values = board.valuesAt(payload, asked, column);
    const ranks = board.ranksWithin(entries, values);
    const taken = new Map();
    const place = (at) => `${entries[at].division} ${ranks[at]}`;
    for (const at of ranks.keys()) taken.set(place(at), (taken.get(place(at)) || 0) + 1);
    const ceil = payload.ruleset.rounding === "ceil-seconds";
    return entries.map((entry, at) => {
      const value = values[at];
      return { entry, at, value: Number.isFinite(value) ? value : null, low: null, high: null, rank: ranks[at],
        shared: taken.get(place(at)) > 1, note: "", ranks: "", against: "",
        // Only one page of up to ten thousand rows is shown.
        get text() {
          if (value === null) return "";
          return column === "time" ? board.seconds(value, ceil) : board.dollars(value, ceil);
        },
        get reached() {
          return board.reachedAt(entry.steps, asked, target.direction === "lower");
        },
        move: [before[at], ranks[at]] };
    });
  };
})((window.levelbench = window.levelbench || {}));
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
/* The controls: columns, filters, target and pager. The script makes them, since they need it to work; all are plain
 * form controls, so that keyboards and screen readers support them. */
"use strict";
(function (board) {
  const { el } = board;

  function distinct(entries, name) {
    const counts = new Map();
    for (const entry of entries) if (entry[name]) counts.set(entry[name], (counts.get(entry[name]) || 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  }

  /* The static tiles, each with a radio button in it. */
  board.makeColumns = function (list, state, change) {
    for (const tile of list.querySelectorAll("[data-column]")) {
      const name = tile.dataset.column;
      const input = el("input", { type: "radio", name: "column", value: name, class: "hidden", checked: name === state.column });
      const label = el("label", { class: "tile" }, input, ...tile.childNodes);
      input.addEventListener("change", () => change({ column: name, page: "1" }));
      tile.replaceChildren(label);
    }
  };

  function field(name, label, control) {
    control.id = `f-${name}`;
    control.name = name;
    return el("div", { class: `field ${name}` }, el("label", { for: control.id }, label), control);
  }

  function select(options, value) {
    return el("select", {}, ...options.map(([key, text]) => el("option", { value: key, selected: key === value }, text)));
  }

  function controls(payload, state) {
    const { entries } = payload;
    const frameworks = distinct(entries, "framework").slice(0, 200).map(([name, count]) => [name, `${name} (${count})`]);
    const hardware = el("datalist", { id: "hardwares" },
      ...distinct(entries, "hardware").slice(0, 100).map(([name]) => el("option", { value: name })));
    return [
      field("q", "Search", el("input", { type: "search", value: state.q, autocomplete: "off", placeholder: "model, author, hardware" })),
      field("framework", "Framework", select([["", "any"], ...frameworks], state.framework)),
      field("hardware", "Hardware", el("input", { type: "search", list: "hardwares", value: state.hardware, autocomplete: "off", placeholder: "any" })),
      hardware,
      field("division", "Division", select([["", "any"], ...payload.divisions.map((name) => [name, name])], state.division)),
      field("signed", "Signature", select([["", "any"], ["signed", "signed"], ["unsigned", "unsigned"], ["wrong", "wrong"]], state.signed)),
      field("from", "From", el("input", { type: "date", value: state.from })),
      field("to", "To", el("input", { type: "date", value: state.to })),
      field("runs", "3 runs or more", el("input", { type: "checkbox", checked: state.runs !== "" })),
    ];
  }

  board.makeFilters = function (form, payload, state, change) {
    const more = el("button", { type: "button", class: "more", "aria-expanded": "false", onclick: () => {
      more.setAttribute("aria-expanded", String(form.classList.toggle("open")));
    } }, "Filters");
    const sort = field("sort", "Sort by", select(
      board.sortChoices(state, payload).flatMap(([key, , text]) => [[key, text], [`${key}:desc`, `${text}, downwards`]]), state.sort));
    const reset = el("button", { type: "button", class: "quiet", onclick: () => change(null) }, "Reset");
    const [search, ...others] = controls(payload, state);
    form.replaceChildren(search, sort, more, ...others, reset);
    const read = (event) => {
      const { name, type, value, checked } = event.target;
      if (name) change({ [name]: type === "checkbox" ? (checked ? "3" : "") : value, ...(name === "sort" ? {} : { page: "1" }) });
    };
    form.addEventListener("input", read);
    form.addEventListener("submit", (event) => event.preventDefault());
  };

  /* The filter by runs is there where it lets anything through; of inference it counts processes. */
  board.showRuns = function (form, shown, column) {
    const place = form.querySelector(".field.runs");
    place.hidden = !shown;
    place.querySelector("label").textContent = `3 ${board.ofTraining(column) ? "runs" : "processes"} or more`;
  };

  /* Put the state into the controls that do not have it (a link was followed, or "Reset"). */
  board.syncFilters = function (form, state) {
    for (const control of form.elements) {
      if (!Object.hasOwn(state, control.name)) continue;
      if (control.type === "checkbox") control.checked = state[control.name] !== "";
      else if (control.value !== state[control.name]) control.value = state[control.name];
    }
  };

  /* The slider: moved, it asks what the ranking would be at another target. */
  board.makeSlider = function (place, payload, state, change, need) {
    const { target } = payload;
    const [low, high] = board.targetRange(payload);
    const STEPS = 200;
    const places = Math.max(1, Math.ceil(-Math.log10((high - low) / STEPS)) - (target.high === 1 ? 2 : 0));
    const valueAt = (at) => low + ((high - low) * at) / STEPS;
    const own = Math.round(((target.threshold - low) / (high - low)) * STEPS);
    const slider = el("input", { type: "range", min: 0, max: STEPS, step: 1, id: "target", list: "own-target" });
    const output = el("output", { for: "target" });
    const back = el("button", { type: "button", class: "quiet", onclick: () => change({ target: "", page: "1" }) }, "Back to the rules' target");
    const text = (value) => board.quality(value, target, places);
    // A touched slider will move: request the data for that now.
    for (const each of ["focus", "pointerenter"]) slider.addEventListener(each, need);
    slider.addEventListener("input", () => {
      const at = Number(slider.value);
      change({ target: at === own ? "" : String(Number(valueAt(at).toPrecision(6))), page: "1" });
    });
    place.replaceChildren(
      el("label", { for: "target" }, "What if the target were"), output, back, slider,
      el("datalist", { id: "own-target" }, el("option", { value: own })),
      el("div", { class: "ends", "aria-hidden": "true" }, el("span", {}, text(low)), el("span", {}, text(high))));
    return function sync(current) {
      const shown = current.target === "" ? target.threshold : Number(current.target);
      slider.value = current.target === "" ? own : Math.round(((shown - low) / (high - low)) * STEPS);
      output.textContent = text(shown);
      slider.setAttribute("aria-valuetext", text(shown));
      back.hidden = current.target === "";
      place.hidden = !board.movable(payload, current.column);
    };
  };

  board.drawPager = function (place, count, state, change) {
    const pages = Math.max(1, Math.ceil(count / board.PAGE));
    const page = Number(state.page);
    place.hidden = pages === 1;
    const go = (to, text, words) =>
      el("button", { type: "button", "aria-label": words, disabled: to < 1 || to > pages || to === page, onclick: () => change({ page: String(to) }) }, text);
    const from = (page - 1) * board.PAGE;
    place.replaceChildren(
      go(1, "«", "First page"), go(page - 1, "‹", "Previous page"),
      el("span", {}, `${from + 1}–${Math.min(count, from + board.PAGE)} of ${count.toLocaleString("en-GB")}`),
      go(page + 1, "›", "Next page"), go(pages, "»", "Last page"));
  };
})((window.levelbench = window.levelbench || {}));
/* The curves of the chosen entries in one drawing: running bests on a logarithmic time axis.
 *
 * A series is identified by colour and dashes, and its legend entry has its link and name. */
"use strict";
(function (board) {
  const { el, svg } = board;
  const BOX = { width: 640, height: 320, left: 56, right: 16, top: 14, bottom: 40 };
  board.SERIES = 8;
  board.FULL = `${board.SERIES} curves are drawn at most: untick one first.`;
  const DASHES = ["", "10 3", "2.4 2.4", "10 3 2.4 3"];

  function limits(chosen, target) {
    const times = [];
    const qualities = [target.threshold];
    for (const entry of chosen) {
      for (const run of entry.steps) {
        for (let at = 0; at < run.length; at += 2) {
          if (run[at + 1] > 0) times.push(run[at + 1]);
          qualities.push(run[at]);
        }
      }
    }
    const low = times.reduce((one, other) => Math.min(one, other), Infinity);
    const high = times.reduce((one, other) => Math.max(one, other), 0);
    const lower = target.direction === "lower";
    const best = qualities.reduce((one, other) => (lower ? Math.min(one, other) : Math.max(one, other)));
    const worst = qualities.reduce((one, other) => (lower ? Math.max(one, other) : Math.min(one, other)));
    const room = Math.max(Math.abs(best - target.threshold), 0.02 * (Math.abs(target.threshold) || 1));
    // Curves differ near the target; early values far from it may lie outside the drawing.
    const far = lower ? Math.min(worst, target.threshold + 6 * room) : Math.max(worst, target.threshold - 6 * room);
    const near = lower ? best - 0.4 * room : best + 0.4 * room;
    return { low: low / 1.05, high: high * 1.05, bottom: Math.min(far, near), top: Math.max(far, near) };
  }

  /* Times people count in, from the coarsest set that has three between the two. */
  function ticks(low, high) {
    const sets = [[1, 60, 3600], [1, 10, 60, 600, 3600, 36000], [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000]];
    for (const set of sets) {
      const found = set.filter((value) => value >= low && value <= high);
      for (let power = -9; power < 0; power += 1) {
        for (const factor of set.length > 6 ? [1, 2, 5] : [1]) if (factor * 10 ** power >= low && factor * 10 ** power <= high) found.push(factor * 10 ** power);
      }
      for (let value = 360000; value <= high; value *= 10) if (value >= low) found.push(value);
      if (found.length > 2) return found;
    }
    return [low, high];
  }

  /* Round values between two, at most so many steps. */
  function rounded(low, high, most) {
    const rough = (high - low) / most;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999999);
    const found = [];
    for (let at = Math.ceil(low / step); at * step <= high; at += 1) found.push(at * step);
    return found;
  }

  function axes(range, target, x, y) {
    const parts = [];
    const bottom = BOX.height - BOX.bottom;
    for (const value of ticks(range.low, range.high)) {
      parts.push(svg("line", { class: "grid", x1: x(value), x2: x(value), y1: BOX.top, y2: bottom }));
      parts.push(svg("text", { x: x(value), y: bottom + 16, "text-anchor": "middle" }, board.tick(value)));
    }
    for (const value of rounded(range.bottom, range.top, 5)) {
      parts.push(svg("line", { class: "grid", x1: BOX.left, x2: BOX.width - BOX.right, y1: y(value), y2: y(value) }));
      parts.push(svg("text", { x: BOX.left - 6, y: y(value) + 4, "text-anchor": "end" }, board.quality(value, target, -1)));
    }
    parts.push(svg("line", { class: "target", x1: BOX.left, x2: BOX.width - BOX.right, y1: y(target.threshold), y2: y(target.threshold) }));
    parts.push(svg("text", { class: "target", x: BOX.left + 6, y: y(target.threshold) - 5 }, `target ${board.quality(target.threshold, target, -1)}`));
    parts.push(svg("text", { x: (BOX.left + BOX.width - BOX.right) / 2, y: BOX.height - 6, "text-anchor": "middle" }, "time on the clock"));
    return parts;
  }

  /* A step line: held until the next improvement. */
  function path(run, x, y) {
    let text = "";
    for (let at = 0; at < run.length; at += 2) {
      const [quality, time] = [run[at], run[at + 1]];
      if (time > 0) text += text ? `H${x(time).toFixed(1)}V${y(quality).toFixed(1)}` : `M${x(time).toFixed(1)} ${y(quality).toFixed(1)}`;
    }
    return text;
  }

  /* Names that tell the drawn entries apart. */
  function labels(drawn) {
    const names = drawn.map((entry) => `${entry.model}, ${entry.author}`);
    const again = (name) => names.indexOf(name) !== names.lastIndexOf(name);
    return names.map((name, at) => (again(name) ? `${name}, ${drawn[at].framework}, ${drawn[at].hardware}` : name));
  }

  function legendEntry(entry, name, at, root, drop) {
    const sample = svg("svg", { viewBox: "0 0 30 6", "aria-hidden": "true", focusable: "false" },
      svg("path", { d: "M0 3H30", class: `line s${at}`, "stroke-dasharray": DASHES[at % DASHES.length] }));
    return el("li", {}, sample, el("a", { href: root + board.inside(entry.page) }, name),
      el("button", { type: "button", class: "quiet", "aria-label": `Remove ${name}`, onclick: () => drop(entry.slug) }, "×"));
  }

  board.drawCurves = function (place, payload, chosen, root, drop) {
    if (chosen.some((entry) => entry.curve) && !payload.whole) {
      place.replaceChildren(el("p", { class: "note" }, "Loading the curves."));
      return;
    }
    const drawn = chosen.filter((entry) => entry.steps.some((run) => run[run.length - 1] > 0)).slice(0, board.SERIES);
    if (!drawn.length) {
      place.replaceChildren(el("p", { class: "note" }, `Tick up to ${board.SERIES} entries in the table to compare their curves.`));
      return;
    }
    const { target } = payload;
    const names = labels(drawn);
    const range = limits(drawn, target);
    const width = BOX.width - BOX.left - BOX.right;
    const height = BOX.height - BOX.top - BOX.bottom;
    const x = (time) => BOX.left + (width * Math.log(time / range.low)) / Math.log(range.high / range.low);
    const y = (quality) => BOX.top + (height * (range.top - Math.max(quality, range.bottom - 1))) / (range.top - range.bottom);
    const lines = drawn.flatMap((entry, at) => entry.steps.filter((run) => run.length).map((run) =>
      svg("path", { d: path(run, x, y), class: `line s${at}`, "stroke-dasharray": DASHES[at % DASHES.length] },
        svg("title", {}, names[at]))));
    const words = drawn.map((entry, at) => `${names[at]}: ${entry.has("time") ? entry.figure("time").text : "no time"}`);
    const clip = svg("clipPath", { id: "plot" }, svg("rect", { x: BOX.left, y: BOX.top, width, height }));
    place.replaceChildren(
      svg("svg", { viewBox: `0 0 ${BOX.width} ${BOX.height}`, class: "plot", role: "img",
        "aria-label": `Running best ${target.metric} over time. ${words.join("; ")}.` },
        clip, ...axes(range, target, x, y), svg("g", { "clip-path": "url(#plot)" }, ...lines)),
      el("ul", { class: "legend" }, ...drawn.map((entry, at) => legendEntry(entry, names[at], at, root, drop))));
  };
})((window.levelbench = window.levelbench || {}));
/* Connects the parts of a task's page: data, address to state, state to table. */
"use strict";
(function (board) {
  const { el } = board;
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement.dataset.root || "";
  const lower = (title) => title[0].toLowerCase() + title.slice(1);
  const asIf = (state, payload) => state.target !== "" && board.movable(payload, state.column);

  /* Columns with a figure of at least one entry. */
  const columnsOf = (payload) =>
    [...new Set([payload.ruleset.ranked_by, ...board.COLUMNS])].filter((column) => Object.hasOwn(payload.columns.figures, column));

  function corrected(state, payload) {
    const columns = columnsOf(payload);
    if (!columns.includes(state.column)) state.column = columns[0] || "time";
    if (!board.sortable(state.sort.split(":")[0])) state.sort = "rank";
    if (!/^[1-9]\d{0,5}$/.test(state.page)) state.page = "1";
    for (const name of ["from", "to"]) if (board.date(state[name]) !== state[name]) state[name] = "";
    if (state.target !== "" && !Number.isFinite(Number(state.target))) state.target = "";
    return state;
  }

  board.board = function (packed) {
    const payload = board.unpack(packed);
    const first = columnsOf(payload)[0] || "time";
    let state = corrected(board.parse(location.hash), payload);
    const table = byId("ranking");
    const form = byId("filters");
    const bySlug = new Map(payload.entries.map((entry) => [entry.slug, entry]));
    let shownColumn = null;
    let syncSlider = () => undefined;

    const change = function (changes) {
      const asked = changes === null ? { ...board.parse(""), column: state.column } : { ...state, ...changes };
      state = corrected(asked, payload);
      const kept = board.format({ ...state, column: state.column === first ? "" : state.column });
      history.replaceState(null, "", kept ? `#${kept}` : location.pathname + location.search);
      show();
      if (changes === null) board.syncFilters(form, state);
    };

    const picked = () => new Set(state.curves.split(",").filter((slug) => bySlug.has(slug)).slice(0, board.SERIES));
    const onpick = function (slug, on) {
      const set = picked();
      const full = on && set.size >= board.SERIES;
      const inTable = table.contains(document.activeElement);
      if (on && !full) set.add(slug);
      if (!on) set.delete(slug);
      change({ curves: [...set].join(",") });
      if (full) byId("found").append(` ${board.FULL}`);
      // The rows are replaced: keep the reader's place.
      const again = inTable && [...table.querySelectorAll("tr[data-slug]")].find((row) => row.dataset.slug === slug);
      if (again) again.querySelector("input").focus();
    };
    const onsort = function (key) {
      const [name, direction] = state.sort.split(":");
      change({ sort: name === key && direction !== "desc" ? `${key}:desc` : key, page: "1" });
      board.syncFilters(form, state);
      const again = [...table.querySelectorAll("th[aria-sort] button")][0];
      if (again) again.focus();
    };

    // The runs' steps are most of the data: they are loaded only for another target or a curve.
    const need = () => board.fetchSteps(payload, root, show);

    let whole = false;
    const show = function () {
      if (state.target !== "" || picked().size) need();
      const all = board.rows(payload, state);
      const having = all.filter((row) => row.entry.has(state.column));
      const many = having.some((row) => row.entry.n >= 3);
      const passes = board.filter(many ? state : { ...state, runs: "" });
      board.showRuns(form, many, state.column);
      const some = having.filter((row) => passes(row.entry));
      const rows = board.sort(some, state);
      const pages = Math.max(1, Math.ceil(rows.length / board.PAGE));
      if (Number(state.page) > pages) state.page = String(pages);
      board.draw(table, rows, { payload, state, scale: board.barScale(all), root, picked: picked(), onpick, onsort, whole });
      byId("found").textContent = board.summary(rows.length, having.length, state, payload);
      board.drawPager(byId("pager"), rows.length, state, change);
      syncSlider(state);
      if (shownColumn !== state.column) showColumn();
      const about = [board.ofTraining(state.column) ? "training" : "inference", asIf(state, payload) ? "asked" : "rules"];
      for (const each of document.querySelectorAll("[data-about]")) each.hidden = !about.includes(each.dataset.about);
      if (byId("overlaid")) byId("overlaid").hidden = !board.ofTraining(state.column);
      if (byId("curves")) board.drawCurves(byId("curves"), payload, [...picked()].map((slug) => bySlug.get(slug)), root, (slug) => onpick(slug, false));
    };

    const showColumn = function () {
      shownColumn = state.column;
      for (const figure of document.querySelectorAll("[data-progress]")) figure.hidden = figure.dataset.progress !== state.column;
      for (const radio of document.querySelectorAll("input[name=column]")) radio.checked = radio.value === state.column;
      table.caption.textContent = `Ranking by ${lower(board.titleOf(payload, state.column))}`;
      table.dataset.column = state.column;
    };

    board.makeColumns(byId("columns"), state, change);
    board.makeFilters(form, payload, state, change);
    for (const each of document.querySelectorAll(".script")) each.hidden = false;
    byId("slider").hidden = typeof payload.reach !== "number";
    if (!byId("slider").hidden) syncSlider = board.makeSlider(byId("slider"), payload, state, change, need);
    for (const each of document.querySelectorAll(".no-script")) each.hidden = true;
    window.addEventListener("hashchange", () => {
      if (!location.hash.includes("=")) return;
      state = corrected(board.parse(location.hash), payload);
      show();
      board.syncFilters(form, state);
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
      if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
      event.preventDefault();
      form.elements.q.focus();
    });
    // All rows are printed, since paper cannot be paged.
    for (const [name, all] of [["beforeprint", true], ["afterprint", false]]) {
      window.addEventListener(name, () => {
        whole = all;
        show();
      });
    }
    show();
    document.documentElement.dataset.ready = "yes";
  };

  /* The data of a large board is asked for at the reader's first sign of life, or by a link into it. */
  const later = document.querySelector("script[data-later]");
  if (later && /^(?:\.\.\/)*data\/(?!.*\.\.)[A-Za-z0-9_.-]+\.js$/.test(later.dataset.later)) {
    const signs = ["pointermove", "pointerdown", "touchstart", "wheel", "scroll", "keydown", "focusin", "hashchange"];
    const load = function () {
      for (const sign of signs) window.removeEventListener(sign, load);
      document.head.append(el("script", { src: later.dataset.later, async: true }));
    };
    if (location.hash.includes("=")) load();
    else for (const sign of signs) window.addEventListener(sign, load, { passive: true });
  }

  board.summary = function (count, of, state, payload) {
    const entries = `${count.toLocaleString("en-GB")} of ${of.toLocaleString("en-GB")} entries`;
    const what = `by ${lower(board.titleOf(payload, state.column))}`;
    const asked = asIf(state, payload) ? board.quality(Number(state.target), payload.target, 2) : "";
    const moved = `, as if the target were ${asked}: by value alone, without intervals`;
    const target = asked === "" ? "" : payload.whole ? moved : `; those at ${asked} are loading`;
    return `${entries} ${what}${target}.`;
  };
})((window.levelbench = window.levelbench || {}));
