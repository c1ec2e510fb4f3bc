/* What is shown: column, filters, sorting, target, page and chosen curves; kept in the address, so that a view can be
 * linked. The one idea: the address's fragment is the only state, and every part of it has a default that is left out. */
"use strict";
(function (board) {
  const COLUMNS = ["time", "cost", "latency", "inference_cost"];
  const DEFAULTS = {
    column: "", q: "", framework: "", hardware: "", division: "", signed: "", runs: "", from: "", to: "",
    sort: "rank", target: "", page: "1", curves: "",
  };
  board.COLUMNS = COLUMNS;
  board.PAGE = 200;

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
    rank: (row) => row.rank,
    figure: (row) => row.value,
    reached: (row) => (row.entry.n ? row.reached / row.entry.n : null),
    entry: (row) => fold(row.entry.model),
    author: (row) => fold(row.entry.author),
    hardware: (row) => fold(row.entry.hardware),
    framework: (row) => fold(row.entry.framework),
    date: (row) => board.date(row.entry.date) || null,
    notes: (row) => row.entry.findings.errors * 1000 + row.entry.findings.warnings,
  };
  board.sortable = (name) => Object.hasOwn(KEYS, name);

  board.sort = function (rows, state) {
    const [name, direction] = state.sort.split(":");
    const key = KEYS[name] || KEYS.rank;
    const sign = direction === "desc" ? -1 : 1;
    const keyed = rows.map((row) => ({ row, key: key(row) }));
    const last = (value) => value === null || value === undefined || Number.isNaN(value);
    keyed.sort((a, b) => {
      if (last(a.key) || last(b.key)) return last(a.key) - last(b.key) || a.row.at - b.row.at;
      if (a.key < b.key) return -sign;
      if (a.key > b.key) return sign;
      const tied = (one, other) => (one ?? Infinity) < (other ?? Infinity) ? -1 : (one ?? Infinity) > (other ?? Infinity) ? 1 : 0;
      return tied(a.row.rank, b.row.rank) || tied(a.row.value, b.row.value) || a.row.at - b.row.at;
    });
    return keyed.map((each) => each.row);
  };

  /* The rows of a column, with what moved where the target is not the board's own. */
  board.rows = function (payload, state) {
    const { entries, target } = payload;
    const column = state.column;
    const asked = Number(state.target);
    const known = entries.some((entry) => entry.steps.length);
    const moved = known && state.target !== "" && Number.isFinite(asked) && (column === "time" || column === "cost");
    if (!moved) {
      return entries.map((entry, at) => {
        const figure = entry.figures[column] || {};
        const value = typeof figure.value === "number" ? figure.value : null;
        return { entry, at, value, low: figure.low, high: figure.high, rank: figure.rank ?? null, shared: figure.shared,
          text: figure.text || "", note: figure.note || "", reached: entry.reached, move: null };
      });
    }
    const before = board.ranksBefore(payload, column);
    const values = board.valuesAt(payload, asked, column);
    const ranks = board.ranks(values);
    const taken = new Map();
    for (const rank of ranks) taken.set(rank, (taken.get(rank) || 0) + 1);
    const ceil = payload.ruleset.rounding === "ceil-seconds";
    return entries.map((entry, at) => {
      const value = values[at];
      const shown = value === null ? "" : column === "time" ? board.seconds(value, ceil) : board.dollars(value, ceil);
      return { entry, at, value: Number.isFinite(value) ? value : null, low: null, high: null, rank: ranks[at],
        shared: taken.get(ranks[at]) > 1, text: value === null ? "" : shown, note: "",
        get reached() {
          return board.reachedAt(entry.steps, asked, target.direction === "lower");
        },
        move: [before[at], ranks[at]] };
    });
  };
})((window.levelbench = window.levelbench || {}));
