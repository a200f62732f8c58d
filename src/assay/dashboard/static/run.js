// The curves of one run, live from its event log. A message has the new points; after a lost connection the browser goes
// on from the last one. A resumed run takes back the points that it trains anew.
(() => {
  const course = document.getElementById("course");
  const predicted = Number(course.dataset.predicted); // seconds of a step; 0 if there are none
  const steps = new Map();
  const evaluations = new Map();
  let blocks = [];
  let due = false;
  const MOST_POINTS = 3000;

  const put = (id, text) => { document.getElementById(id).textContent = text ?? "–"; };
  const count = (value) => Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 }).format(value);
  const time = (seconds) => (seconds >= 1 ? `${seconds.toPrecision(3)} s` : `${(seconds * 1000).toPrecision(3)} ms`);
  const mebibytes = (bytes) => bytes / 2 ** 20;
  const memory = (bytes) => `${mebibytes(bytes).toFixed(1)} MiB`;

  function take(batch) {
    if (batch.resumed_at !== null) {
      for (const step of steps.keys()) if (step >= batch.resumed_at) steps.delete(step);
      for (const step of evaluations.keys()) if (step > batch.resumed_at) evaluations.delete(step);
      blocks = blocks.filter(([step]) => step <= batch.resumed_at);
    }
    for (const point of batch.steps) steps.set(point[0], point);
    for (const [step, loss] of batch.evaluations) evaluations.set(step, loss);
    blocks.push(...batch.blocks);
    if (batch.unmeasured) put("unmeasured", batch.unmeasured);
    for (const [of, text] of batch.proofs) prove(of, text);
    put("phase", batch.phase);
    put("step", `${batch.done} of ${batch.total}`);
    put("left", batch.left);
    const bar = document.getElementById("done");
    bar.max = Math.max(1, batch.total);
    bar.value = batch.done;
    if (!due) { due = true; requestAnimationFrame(() => { due = false; draw(); }); }
  }

  // A later proof of the same takes the place of an earlier one; a note, which proves nothing, is listed once.
  function prove(of, text) {
    const lines = [...document.querySelectorAll("#proofs li:not(.note)")];
    const known = lines.find((one) => (of ? one.dataset.of === of : one.textContent === text));
    if (known) { known.textContent = text; return; }
    document.querySelector("#proofs .note")?.remove();
    const line = document.createElement("li");
    line.dataset.of = of;
    line.textContent = text;
    document.getElementById("proofs").append(line);
  }

  function thinned(points) {
    const every = Math.ceil(points.length / MOST_POINTS);
    return every > 1 ? points.filter((_, at) => at % every === 0 || at === points.length - 1) : points;
  }

  function curve(target, traces, title, more = {}) {
    Plots.draw(target, traces, {
      showlegend: traces.length > 1, xaxis: { title: "step" }, yaxis: { title, ...more }, margin: { l: 8, r: 8, t: 24, b: 8 },
    });
  }
  const line = (x, y, name, number, more = {}) => ({
    x, y, name, mode: "lines", line: { color: Plots.series(number), width: 1.8 }, ...more,
  });
  const level = (x, value, name) => line([x[0], x[x.length - 1]], [value, value], name, 0, {
    line: { color: Plots.series(0), dash: "dash", width: 1.5 },
  });

  function draw() {
    const all = [...steps.values()].sort((one, other) => one[0] - other[0]);
    if (!all.length) return;
    const points = thinned(all);
    const x = points.map((one) => one[0]);
    const last = all[all.length - 1];
    const recent = all.slice(-20).map((one) => one[2]).sort((a, b) => a - b);
    const seconds = recent[Math.floor((recent.length - 1) / 2)];
    put("loss", last[1] === null ? "not finite" : last[1].toFixed(4));
    put("seconds", time(seconds));
    put("speed", count(last[4] / seconds));
    put("norm", last[3] === null ? null : last[3].toPrecision(3));
    if (blocks.length) put("memory", memory(blocks[blocks.length - 1][1]));

    const losses = [line(x, points.map((one) => one[1]), "training", 1)];
    const seen = [...evaluations.entries()].sort((one, other) => one[0] - other[0]);
    if (seen.length) {
      losses.push(line(seen.map((one) => one[0]), seen.map((one) => one[1]), "validation", 2, { mode: "lines+markers" }));
    }
    curve("plot-loss", losses, course.dataset.unit);
    const times = [line(x, points.map((one) => one[2] * 1000), "measured", 1)];
    if (predicted) times.push(level(x, predicted * 1000, "predicted"));
    // The first steps compile and trace; they would flatten all others.
    const typical = points.map((one) => one[2] * 1000).sort((a, b) => a - b)[Math.floor(points.length * 0.9)];
    curve("plot-seconds", times, "milliseconds", { range: [0, typical * 1.4] });
    curve("plot-norm", [line(x, points.map((one) => one[3]), "norm", 3)], "before clipping");
    if (blocks.length) {
      curve("plot-memory", [line(blocks.map((one) => one[0]), blocks.map((one) => mebibytes(one[1])), "process", 4, {
        mode: "lines+markers",
      })], "MiB", { rangemode: "tozero" });
    }
  }

  const wasLive = document.getElementById("status").textContent === "running";
  const source = new EventSource(`/runs/${encodeURIComponent(course.dataset.run)}/events?offset=0`);
  source.onmessage = (event) => JSON.parse(event.data).forEach(take);
  source.addEventListener("now", (event) => put("now", memory(JSON.parse(event.data))));
  source.addEventListener("over", () => {
    source.close();
    put("left", null);
    put("phase", "ended");
    if (wasLive) {
      put("now", null);
      put("status", "ended");
      document.getElementById("reload").classList.remove("hidden");
    }
  });
})();
