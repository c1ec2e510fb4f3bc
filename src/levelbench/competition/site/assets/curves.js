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
