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
    const easy = lower ? target.threshold + 3 * span : Math.max(target.low ?? -Infinity, target.threshold - 3 * span);
    return lower ? [best, easy] : [easy, best];
  };
})((window.levelbench = window.levelbench || {}));
