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
