// Scaling: the budget is dragged, and each answer replaces the one before it and the address.
(() => {
  const form = document.getElementById("question");
  const box = form.querySelector(".budget");
  const field = form.elements.flops;
  const least = Number(box.dataset.least), most = Number(box.dataset.most);
  const range = Object.assign(document.createElement("input"), { type: "range", min: least, max: most, step: 0.02 });
  let asking = null, changing = 0;
  range.setAttribute("aria-label", "budget, slider");
  const place = () => {
    const power = Math.log10(Number(field.value));
    if (Number.isFinite(power)) range.value = power;
    range.setAttribute("aria-valuetext", `${field.value} FLOPs`);
  };
  range.addEventListener("input", () => {
    field.value = (10 ** range.value).toExponential(2).replace("e+", "e");
    range.setAttribute("aria-valuetext", `${field.value} FLOPs`);
    changed(40);
  });
  field.addEventListener("input", () => { place(); changed(250); });
  for (const one of form.querySelectorAll("select, .fields input")) one.addEventListener("input", () => changed(150));
  form.addEventListener("submit", (event) => { event.preventDefault(); changed(0); });
  box.append(range);
  place();

  function changed(wait) {
    clearTimeout(changing);
    changing = setTimeout(ask, wait);
  }

  async function ask() {
    asking?.abort();
    asking = new AbortController();
    try {
      show(await (await fetch(`/scaling/answer?${new URLSearchParams(new FormData(form))}`, { signal: asking.signal })).json());
    } catch (error) {
      if (error.name !== "AbortError") said("The dashboard does not answer. Is it still running?");
    }
  }

  function said(text) { document.getElementById("said").textContent = text; }

  function show(found) {
    document.getElementById("answer").innerHTML = found.html; // the server has escaped all text
    said(found.said);
    if (found.query !== null) history.replaceState(null, "", found.query ? `/scaling?${found.query}` : "/scaling");
    draw(found);
  }

  function draw({ sizes, losses }) {
    if (sizes) drawSizes(sizes);
    document.getElementById("losses-figure").classList.toggle("hidden", !losses);
    if (losses) drawLosses(losses);
  }

  // Marks would widen the axes, and on a narrow screen the margins and the axes would then move each other for ever.
  const reach = (values) => [Math.log10(Math.min(...values)), Math.log10(Math.max(...values))];

  function drawSizes({ lines }) {
    const traces = lines.flatMap((line, number) => {
      const color = Plots.series(number + 1), width = line.chosen ? 3 : 1;
      const inside = line.x.filter((flops) => flops <= line.most).length;
      const text = { name: line.name, legendgroup: line.name, hovertemplate: `${line.name}<br>%{y:.3s} parameters at %{x:.2e} FLOPs<extra></extra>` };
      return [
        { x: line.x.slice(0, inside), y: line.y.slice(0, inside), mode: "lines", line: { color, width }, ...text },
        { x: line.x.slice(Math.max(0, inside - 1)), y: line.y.slice(Math.max(0, inside - 1)), mode: "lines", showlegend: false, line: { color, width, dash: "dot" }, ...text },
        ...(line.rows.length ? [{ x: line.rows.map((one) => one[0]), y: line.rows.map((one) => one[1]), mode: "markers", showlegend: false, marker: { color, size: 8, symbol: "square-open" }, ...text }] : []),
        ...(line.best ? [{ x: [line.best[0]], y: [line.best[1]], mode: "markers", showlegend: false, marker: { color, size: line.chosen ? 13 : 7, symbol: line.chosen ? "diamond" : "circle", line: { color: "var(--paper)", width: 1 } }, ...text }] : []),
      ];
    });
    Plots.draw("sizes", traces, {
      xaxis: { type: "log", title: "training FLOPs", exponentformat: "e", nticks: 7, range: reach(lines.flatMap((line) => line.x)) },
      yaxis: { type: "log", title: "parameters", exponentformat: "SI", nticks: 8, range: reach(lines.flatMap((line) => line.y)) },
    });
  }

  function drawLosses({ curves }) {
    const traces = curves.flatMap((curve, number) => {
      const color = Plots.series(number + 1);
      const text = { name: curve.name, legendgroup: curve.name };
      return [
        { x: curve.x, y: curve.y, customdata: curve.texts, mode: "lines", line: { color, width: curve.asked ? 3 : 1 }, hovertemplate: `${curve.name}<br>loss %{y:.4f} with %{customdata} parameters<extra></extra>`, ...text },
        ...(curve.best ? [{ x: [curve.best[0]], y: [curve.best[1]], mode: "markers", showlegend: false, hoverinfo: "skip", marker: { color, size: 13, symbol: "diamond" }, ...text }] : []),
        ...(curve.runs.length ? [{ x: curve.runs.map((one) => one[0]), y: curve.runs.map((one) => one[1]), customdata: curve.runs.map((one) => one[2]), mode: "markers", showlegend: false, marker: { color, size: 8 }, hovertemplate: "loss %{y:.4f}<br>%{customdata}<extra></extra>", ...text }] : []),
      ];
    });
    Plots.draw("losses", traces, {
      xaxis: { type: "log", title: "parameters", exponentformat: "SI", nticks: 7 }, yaxis: { title: "loss, nats per token" },
    });
  }

  draw(JSON.parse(document.getElementById("shown").textContent));
})();
