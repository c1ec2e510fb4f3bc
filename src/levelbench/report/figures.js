/* Figures that can be read at the pointer and hidden run by run; curves can be zoomed too. Without scripts the drawings
   stay as they are. */
"use strict";
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const make = (name, text = "", more = {}) => Object.assign(document.createElement(name), {textContent: text, ...more});
  const USE = "Move over a curve to read it, drag to zoom, double-click to see all of it.";
  const POINT = "Point at a mark to read it.";

  /* A checkbox with a label, which says whether what it is about is shown. */
  const choice = (text, change) => {
    const label = make("label"), box = make("input", "", {type: "checkbox", checked: true});
    box.addEventListener("change", () => change(box.checked));
    label.append(box, ` ${text}`);
    return [label, box];
  };

  /* The series and bands of uPlot, and for each series what it is called. */
  const read = (groups) => {
    const tables = [], series = [{}], names = [""], bands = [], members = [], dots = [];
    const add = (name, more) => names.push(name) && series.push({points: {show: false}, paths, ...more}) - 1;
    const paths = uPlot.paths.stepped({align: 1});
    for (const {label, colour: name, dash, band, runs} of groups) {
      const stroke = () => colour(name);
      tables.push(band, ...runs.map(([, x, y]) => [x, y]));
      const [low, median, high] = [
        add("", {width: 0, stroke}),
        add(`${label}, median`, {width: 2.5, stroke, dash: dash.map((each) => 2.5 * each)}),
        add("", {width: 0, stroke}),
      ];
      bands.push({series: [high, low], fill: () => `${colour(name)}2e`});
      members.push([label, [low, median, high], runs.map(([run, , , reached]) => {
        const at = add(`${label}, ${run}`, {width: 1, stroke});
        if (reached) dots.push([at, reached, stroke]);
        return [run, at];
      })]);
    }
    return {data: uPlot.join(tables), series, names, bands, members, dots};
  };

  /* The series with a name whose last known value is nearest to the pointer, and that value. */
  const nearest = (plot, names) => {
    const {idx, top} = plot.cursor;
    let found = null, least = 40;
    names.forEach((name, at) => {
      if (idx == null || !name || !plot.series[at].show) return;
      let place = idx;
      while (place >= 0 && plot.data[at][place] == null) place -= 1;
      const away = place < 0 ? Infinity : Math.abs(plot.valToPos(plot.data[at][place], "y") - top);
      if (away < least) [found, least] = [[at, plot.data[at][place]], away];
    });
    return found;
  };

  const live = (drawing) => {
    const curves = JSON.parse(drawing.dataset.curves), box = make("div", "", {className: "live"});
    const {data, series, names, bands, members, dots} = read(curves.groups);
    const unit = curves.unit ? ` ${curves.unit}` : "";
    const all = {x: [0, Math.max(...data[0])], y: curves.limits};
    const show = (plot, {x, y}) => plot.batch(() => {
      plot.setScale("x", {min: x[0], max: x[1]});
      plot.setScale("y", {min: y[0], max: y[1]});
    });
    const axis = (label, more) => ({label, stroke: () => colour("--ink"), font: "12px sans-serif", labelFont: "12px sans-serif",
      grid: {stroke: () => colour("--faint"), width: 1}, ticks: {show: false}, ...more});
    const said = make("p", USE, {className: "note"});
    const target = ({ctx, bbox, valToPos}) => {
      const y = valToPos(curves.target, "y", true);
      if (y < bbox.top || y > bbox.top + bbox.height) return;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = colour("--ink");
      ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      ctx.font = `${12 * devicePixelRatio}px sans-serif`;
      ctx.textAlign = "left";
      ctx.fillText(`target ${curves.target}`, bbox.left + 4 * devicePixelRatio, y - 4 * devicePixelRatio);
      ctx.restore();
    };
    /* A dot where each run that is shown reached the target. */
    const reached = (plot) => dots.forEach(([at, [x, y], stroke]) => {
      const [left, top] = [plot.valToPos(x, "x", true), plot.valToPos(y, "y", true)], {bbox} = plot;
      if (!plot.series[at].show || left < bbox.left || left > bbox.left + bbox.width) return;
      if (top < bbox.top || top > bbox.top + bbox.height) return;
      plot.ctx.beginPath();
      plot.ctx.arc(left, top, 3 * devicePixelRatio, 0, 2 * Math.PI);
      plot.ctx.fillStyle = stroke();
      plot.ctx.fill();
    });
    const point = (plot) => {
      const found = nearest(plot, names);
      plot.setSeries(found ? found[0] : null, {focus: true});
      const x = plot.cursor.idx == null ? null : data[0][plot.cursor.idx];
      said.textContent = found ? `${names[found[0]]}: ${curves.metric} ${found[1]} at ${x.toLocaleString("en")}${unit}` : USE;
    };
    const frame = make("div", "", {role: "img", ariaLabel: drawing.getAttribute("aria-label")});
    const plot = new uPlot({
      width: 300, height: 290, series, bands, legend: {show: false}, focus: {alpha: 0.25},
      scales: {x: {time: false}, y: {auto: false, range: (_, low, high) => [low, high]}},
      axes: [axis(curves.unit ? `${curves.along}, ${curves.unit}` : curves.along), axis(curves.metric, {size: 56})],
      cursor: {points: {show: false}, drag: {x: true, y: true, uni: 20}, bind: {dblclick: () => () => show(plot, all)}},
      hooks: {draw: [target, reached], setCursor: [point]},
    }, data, frame);

    const zoom = (share) => () => {
      const about = ({min, max}) => [0.5 - share / 2, 0.5 + share / 2].map((part) => min + part * (max - min));
      show(plot, {x: about(plot.scales.x), y: [plot.scales.y.min, plot.scales.y.max]});
    };
    const buttons = make("p", "", {className: "note"});
    for (const [text, press] of [["Zoom in", zoom(0.5)], ["Zoom out", zoom(2)], ["See all", () => show(plot, all)]]) {
      const button = make("button", text, {type: "button"});
      button.addEventListener("click", press);
      buttons.append(button, " ");
    }
    const chosen = make("details");
    chosen.append(make("summary", "Show and hide runs"));
    for (const [label, middle, runs] of members) {
      const group = make("fieldset");
      const set = (numbers) => (on) => plot.batch(() => {
        const {min, max} = plot.scales.y;
        numbers.forEach((at) => plot.setSeries(at, {show: on}));
        // uPlot would forget the zoom.
        plot.setScale("y", {min, max});
      });
      const single = runs.map(([name, at]) => [...choice(name, set([at])), at]);
      const [every] = choice("all of its runs", (on) => {
        set(single.map(([, , at]) => at))(on);
        single.forEach(([, each]) => { each.checked = on; });
      });
      group.append(make("legend", label), choice("median and band", set(middle))[0], every, ...single.map(([each]) => each));
      chosen.append(group);
    }
    box.append(frame, said, buttons, chosen);
    drawing.after(box);
    drawing.classList.add("replaced");
    new ResizeObserver(() => plot.setSize({width: box.clientWidth, height: 290})).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plot.redraw());
    plot.setSize({width: box.clientWidth, height: 290});
    show(plot, all);
  };

  /* How far the pointer is from a mark's box, in pixels. */
  const distance = (mark, {clientX, clientY}) => {
    const {left, right, top, bottom} = mark.getBoundingClientRect();
    return Math.hypot(Math.max(left - clientX, 0, clientX - right), Math.max(top - clientY, 0, clientY - bottom));
  };

  /* A drawing whose marks have titles: what is pointed at is said below it, and its groups and runs can be hidden. */
  const marked = (drawing) => {
    const marks = [...drawing.querySelectorAll("[data-run]")], box = make("div", "", {className: "live"});
    const said = make("p", POINT, {className: "note"}), chosen = make("details");
    const point = (event) => {
      const shown = marks.filter((each) => each.style.display !== "none").map((each) => [distance(each, event), each]);
      const [away, nearest] = shown.reduce((one, other) => (other[0] < one[0] ? other : one), [24, null]);
      marks.forEach((each) => each.classList.toggle("pointed", each === nearest));
      said.textContent = nearest && away < 24 ? nearest.querySelector("title").textContent : POINT;
    };
    ["pointermove", "pointerdown"].forEach((each) => drawing.addEventListener(each, point));
    const set = (some) => (on) => some.forEach((each) => { each.style.display = on ? "" : "none"; });
    const by = (some, key) => Map.groupBy(some, (each) => each.dataset[key]);
    chosen.append(make("summary", "Show and hide runs"));
    for (const [label, members] of by(marks, "group")) {
      const group = make("fieldset"), runs = [...by(members, "run")];
      const single = runs.map(([run, its]) => choice(run, set(its)));
      group.append(make("legend", label));
      if (runs.length > 2) {
        group.append(choice("all of it", (on) => {
          set(members)(on);
          single.forEach(([, each]) => { each.checked = on; });
        })[0]);
      }
      group.append(...single.map(([each]) => each));
      chosen.append(group);
    }
    box.append(said, chosen);
    drawing.after(box);
  };
  document.querySelectorAll("[data-curves]").forEach(live);
  [...document.querySelectorAll(".drawing")].filter((each) => each.querySelector("[data-run]")).forEach(marked);
})();
