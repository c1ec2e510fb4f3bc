/* The ranking at another target, from the runs' own steps, by the board's rule; never reached counts as infinite.
 *
 * The one idea: the same function ranks at the board's own target too, so that what moved is like against like. */
"use strict";
(function (board) {
  const beyond = (quality, threshold, lower) => (lower ? quality <= threshold : quality >= threshold);

  /* Seconds at which one run first reached the threshold; steps are its running best in order. */
  function crossing(steps, threshold, lower) {
    let from = 0;
    let to = steps.length;
    while (from < to) {
      const middle = (from + to) >> 1;
      if (beyond(steps[middle][0], threshold, lower)) to = middle;
      else from = middle + 1;
    }
    return from < steps.length ? steps[from][1] : Infinity;
  }

  /* One figure of all runs' times (Infinity: never), by the rule of the board; the same as the build's own. */
  const AGGREGATIONS = {
    "first-run": (times) => times[0],
    median: (times) => {
      const half = times.length / 2;
      const sorted = times.slice().sort((a, b) => a - b);
      const usual = times.length % 2 === 0 && sorted[sorted.length - 1] < Infinity;
      return usual ? (sorted[half - 1] + sorted[half]) / 2 : sorted[Math.ceil(half) - 1];
    },
    olympic: (times, drop) => {
      const kept = times.slice().sort((a, b) => a - b).slice(drop, times.length - drop);
      return kept.length ? kept.reduce((sum, each) => sum + each, 0) / kept.length : Infinity;
    },
  };

  /* Ranks at the board's own target, computed once a column: what moved is told against them. */
  board.ranksBefore = function (payload, column) {
    payload.before = payload.before || new Map();
    if (!payload.before.has(column)) {
      payload.before.set(column, board.ranks(board.valuesAt(payload, payload.target.threshold, column)));
    }
    return payload.before.get(column);
  };

  board.timeAt = function (steps, threshold, lower, ruleset) {
    if (!steps.length) return Infinity;
    const times = steps.map((run) => crossing(run, threshold, lower));
    return AGGREGATIONS[ruleset.aggregation_rule](times, ruleset.drop);
  };
  board.reachedAt = (steps, threshold, lower) =>
    steps.filter((run) => Number.isFinite(crossing(run, threshold, lower))).length;

  /* Rank of each value, 1 for the smallest; equal values share one; null where there is none. */
  board.ranks = function (values) {
    const order = values.map((_, at) => at).filter((at) => Number.isFinite(values[at]));
    order.sort((a, b) => values[a] - values[b]);
    const ranks = values.map(() => null);
    let rank = 0;
    order.forEach((at, place) => {
      if (place === 0 || values[at] !== values[order[place - 1]]) rank = place + 1;
      ranks[at] = rank;
    });
    return ranks;
  };

  /* Each entry's figure at a target: time in seconds, or dollars where the column is cost. */
  board.valuesAt = function (payload, threshold, column) {
    const { entries, target, ruleset } = payload;
    const lower = target.direction === "lower";
    return entries.map((entry) => {
      if (!entry.steps.length) return null;
      const time = board.timeAt(entry.steps, threshold, lower, ruleset);
      if (column === "time") return time;
      return entry.price ? (time * entry.price.usd_per_hour) / 3600 : null;
    });
  };

  /* The targets worth asking about: the best that anyone reached, and three times as far on the easy side. */
  board.targetRange = function (entries, target) {
    const lower = target.direction === "lower";
    let best = target.threshold;
    for (const entry of entries) {
      for (const run of entry.steps) {
        const last = run.length ? run[run.length - 1][0] : best;
        if (lower ? last < best : last > best) best = last;
      }
    }
    const span = Math.abs(best - target.threshold) || 0.05 * (Math.abs(target.threshold) || 1);
    const easy = lower ? target.threshold + 3 * span : Math.max(target.low, target.threshold - 3 * span);
    return lower ? [best, easy] : [easy, best];
  };
})((window.levelbench = window.levelbench || {}));
