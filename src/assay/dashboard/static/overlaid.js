// Several runs on common axes; while one of them trains, its points are asked for again.
(() => {
  const source = document.getElementById("points");
  if (!source) return;
  // Plotly reads a few tags in texts, so names are escaped for it as for a page.
  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const AGAIN = 5000; // milliseconds between two looks

  function line(run, number, values, more = {}) {
    return {
      x: values.map((one) => one[0]), y: values.map((one) => one[1]), mode: "lines", type: "scatter",
      name: escaped(`${run.title} · ${run.run.slice(-11)}`), legendgroup: run.run,
      line: { color: Plots.series(number), width: 1.8 }, marker: { color: Plots.series(number), size: 8 }, ...more,
    };
  }
  function curve(target, traces, title, more = {}) {
    Plots.draw(target, traces, { xaxis: { title: "step" }, yaxis: { title, ...more } });
  }

  function draw({ runs }) {
    curve("plot-loss", runs.flatMap((run, at) => [
      line(run, at + 1, run.steps.map(([step, loss]) => [step, loss])),
      line(run, at + 1, run.evaluations, { mode: "markers", showlegend: false }),
    ]), "loss");
    const times = runs.map((run) => run.steps.map(([step, , seconds]) => [step, 1000 * seconds]));
    // The first steps compile and trace; they would flatten all others.
    const usual = times.map((one) => one.map((point) => point[1]).sort((a, b) => a - b)[Math.floor(one.length * 0.9)] ?? 0);
    const range = Math.max(0, ...usual) ? { range: [0, 1.4 * Math.max(...usual)] } : {};
    curve("plot-seconds", runs.map((run, at) => line(run, at + 1, times[at])), "milliseconds", range);
  }

  async function again() {
    try {
      const found = await (await fetch(`${location.href}&part=points`)).json();
      draw(found);
      if (found.live) setTimeout(again, AGAIN);
    } catch { /* the figures stay as they were */ }
  }

  const shown = JSON.parse(source.textContent);
  draw(shown);
  if (shown.live) setTimeout(again, AGAIN);
})();
