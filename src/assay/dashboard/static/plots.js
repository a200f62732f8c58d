// Figures of Plotly in the colours of the page. A colour is written as "var(--name)" and resolved when drawn, so a
// figure follows light and dark. `Plots.draw` draws a figure or replaces what it shows.
//
//   Plots.draw(element, traces, layout, config)   returns Plotly's promise
//   Plots.series(n)                               colour of the n-th series; 0 is the baseline
const Plots = (() => {
  const drawn = new Map();
  const style = () => getComputedStyle(document.documentElement);

  function resolved(value, css) {
    if (typeof value === "string") {
      const found = /^var\((--[\w-]+)\)$/.exec(value);
      return found ? css.getPropertyValue(found[1]).trim() : value;
    }
    if (Array.isArray(value)) {
      return value.some((one) => typeof one === "string" || (one && typeof one === "object"))
        ? value.map((one) => resolved(one, css)) : value;
    }
    if (value && Object.getPrototypeOf(value) === Object.prototype) {
      return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, resolved(one, css)]));
    }
    return value;
  }

  const axis = {
    gridcolor: "var(--grid)", linecolor: "var(--grid)", zerolinecolor: "var(--grid)", tickcolor: "var(--grid)",
    tickfont: { color: "var(--soft)" }, automargin: true,
  };
  function themed(layout) {
    const own = { ...layout };
    for (const name of Object.keys(own).filter((one) => /^[xy]axis\d*$/.test(one))) {
      const title = typeof own[name].title === "string" ? { text: own[name].title } : own[name].title;
      own[name] = { ...axis, ...own[name], ...(title ? { title: { font: { color: "var(--soft)" }, ...title } } : {}) };
    }
    return {
      xaxis: axis, yaxis: axis, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
      font: { family: "system-ui, sans-serif", size: 13, color: "var(--ink)" },
      margin: { l: 8, r: 8, t: 24, b: 8 }, hovermode: "closest",
      hoverlabel: { bgcolor: "var(--panel)", bordercolor: "var(--soft)", font: { color: "var(--ink)" } },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { color: "var(--ink)" } },
      ...own,
    };
  }

  function draw(element, traces, layout = {}, config = {}) {
    const target = typeof element === "string" ? document.getElementById(element) : element;
    drawn.set(target, [traces, layout, config]);
    const css = style();
    const options = { responsive: true, displayModeBar: false, displaylogo: false, ...config };
    return Plotly.react(target, resolved(traces, css), resolved(themed(layout), css), options);
  }

  document.addEventListener("assay:theme", () => {
    for (const [target, [traces, layout, config]] of drawn) draw(target, traces, layout, config);
  });
  const series = (number) => `var(--series-${number === 0 ? 0 : 1 + (number - 1) % 8})`;
  return { draw, series };
})();
