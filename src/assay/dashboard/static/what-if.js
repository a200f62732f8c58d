// What if: each change of a control asks for an answer, shows it, and puts the question into the address.
const QUESTION = (() => {
  const form = document.getElementById("question");
  const answer = document.getElementById("answer");
  const fit = document.getElementById("fit");
  const recommendation = document.getElementById("recommendation");
  const STEPS = 1000;
  const REST = 1500; // milliseconds without a change before a recommendation is searched
  const NEAR = 3; // times the peak within which the memory of the device is drawn
  const NARROW = 860; // pixels below which the answer is under the form, so that a long menu would hide it
  const AGAIN = 1000; // milliseconds between two looks at a search
  const { memory, stack } = JSON.parse(document.getElementById("shown").textContent);
  let written = stack, asking = null, changing = 0, resting = 0, query = location.search.slice(1), advice = "";

  // A slider moves on a logarithmic scale and gives round numbers; the field beside it takes any.
  const round = {
    layers: (value) => Math.round(value),
    heads: (value) => Math.round(value),
    width: (value) => { const unit = 2 * Number(form.elements.heads.value || 1); return Math.max(unit, unit * Math.round(value / unit)); },
    vocabulary: (value) => (value < 1024 ? Math.round(value) : 64 * Math.round(value / 64)),
    context: (value) => (value < 64 ? Math.round(value) : 8 * Math.round(value / 8)),
    batch: (value) => Math.round(value),
  };
  const sliders = [...document.querySelectorAll(".slider")].map((box) => {
    const { name, least, most } = box.dataset;
    const field = box.querySelector("input");
    const range = Object.assign(document.createElement("input"), { type: "range", min: 0, max: STEPS });
    const span = Math.log(most / least);
    range.setAttribute("aria-label", `${box.querySelector("label").textContent}, slider`);
    const place = () => {
      range.value = STEPS * Math.log(Math.max(least, field.value || least) / least) / span;
      range.setAttribute("aria-valuetext", field.value);
    };
    const there = (position) => String(Math.min(most, Math.max(least, round[name](least * Math.exp(span * position / STEPS)))));
    const moved = () => {
      field.value = there(Number(range.value));
      range.setAttribute("aria-valuetext", field.value);
      changed(60);
    };
    range.addEventListener("input", moved);
    range.addEventListener("keydown", (event) => { // a key reaches the next number, however far it is
      const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
      if (!way) return;
      event.preventDefault();
      let position = Number(range.value);
      do position += way; while (there(position) === field.value && position > 0 && position < STEPS);
      range.value = position;
      moved();
    });
    field.addEventListener("input", () => { place(); changed(250); });
    box.append(range);
    place();
    return { name, field, range, place };
  });

  function asked() {
    const values = new URLSearchParams();
    for (const name of ["preset", "device", "gpus", "micro"]) values.set(name, form.elements[name].value);
    for (const { name, field } of sliders) if (field.value) values.set(name, field.value);
    const on = [...form.querySelectorAll("[name=with]:checked")].filter((one) => !one.closest("li").dataset.fixed);
    values.set("with", on.map((one) => written[one.value] || one.value).join("+"));
    return values;
  }

  function changed(wait) {
    clearTimeout(changing);
    changing = setTimeout(() => ask(asked()), wait);
  }

  async function ask(values) {
    asking?.abort();
    asking = new AbortController();
    try {
      const found = await (await fetch(`/what-if/answer?${values}`, { signal: asking.signal })).json();
      show(found);
    } catch (error) {
      if (error.name !== "AbortError") said("The dashboard does not answer. Is it still running?", true);
    }
  }

  function show(found) {
    answer.innerHTML = found.html; // the server has escaped all text
    said(found.summary, !found.memory);
    document.getElementById("memory").classList.toggle("stale", !found.memory);
    fit.classList.add("stale");
    if (!found.memory) fit.replaceChildren();
    clearTimeout(resting);
    if (!found.read) { // the controls stay as the reader left them, and no search of an earlier question goes on
      query = null;
      advice = "";
      recommendation.replaceChildren(Object.assign(document.createElement("p"), { textContent: found.summary }));
      return;
    }
    query = found.query;
    history.replaceState(null, "", `/what-if?${query}`);
    written = found.stack;
    for (const { name, field, range, place } of sliders) {
      if ([field, range].includes(document.activeElement)) continue; // the reader moves it
      field.value = found.values[name] ?? "";
      place();
    }
    for (const one of found.techniques) {
      const line = form.querySelector(`[data-technique="${CSS.escape(one.name)}"]`);
      if (!line) continue;
      const box = line.querySelector("input");
      box.checked = one.on;
      box.disabled = one.fixed || Boolean(one.why_not);
      line.dataset.fixed = one.fixed ? "yes" : "";
      line.querySelector(".why").textContent = one.fixed ? "the preset turns it on" : one.why_not;
    }
    if (found.memory) {
      draw(found.memory);
      fits();
    }
    resting = setTimeout(recommend, found.memory ? REST : 0); // a refusal takes no search
  }

  async function fits() {
    const now = query;
    try {
      const found = await (await fetch(`/what-if/fit?${now}`, { signal: asking.signal })).json();
      if (now !== query) return;
      fit.innerHTML = found.html; // the server has escaped all text
      fit.classList.remove("stale");
    } catch { /* a newer question, or the next answer says that the dashboard does not answer */ }
  }

  function said(text, caution) {
    const line = document.getElementById("said");
    line.textContent = text;
    line.classList.toggle("caution", caution);
  }

  async function recommend() {
    const now = query;
    try {
      const found = await (await fetch(`/what-if/recommendation?${now}`)).json();
      if (now !== query) return;
      if (found.html !== advice) recommendation.innerHTML = found.html; // the server has escaped all text
      advice = found.html; // an answer that is shown again would lose the focus of its links
      if (found.state === "searching") resting = setTimeout(recommend, AGAIN);
    } catch { /* the next answer says that the dashboard does not answer */ }
  }

  function draw(shown) {
    const instants = [...shown.instants.keys()];
    const places = [...instants, instants.length - 1]; // the last instant is as wide as the others
    const starts = instants.filter((place) => place === 0 || shown.phases[place] !== shown.phases[place - 1]);
    const names = starts.length > 8 ? [] : starts;
    const traces = shown.layers.map((layer) => ({
      x: places.map((_, at) => at), y: places.map((place) => layer.bytes[place] / shown.unit_bytes), name: layer.name, stackgroup: "bytes", mode: "lines",
      line: { width: 0.5, shape: "hv", color: Plots.series(layer.series) }, fillcolor: Plots.series(layer.series),
      customdata: places.map((place) => [layer.texts[place], shown.instants[place], shown.alive[place]]),
      hovertemplate: "%{customdata[0]} " + layer.name + "<br>of %{customdata[2]} alive<br>%{customdata[1]}<extra></extra>",
    }));
    const peak = shown.peak_bytes / shown.unit_bytes;
    const line = (height, dash) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: height, y1: height, line: { color: "var(--ink)", width: 1, dash } });
    const limit = shown.limit_bytes / shown.unit_bytes;
    const near = limit < NEAR * peak; // a limit that is far above would flatten the figure
    Plots.draw("memory", traces, {
      xaxis: { tickvals: names, ticktext: names.map((place) => shown.phases[place]), title: "instants of the step" },
      yaxis: { title: shown.unit, rangemode: "tozero" },
      shapes: [line(peak, "dot"), ...(near ? [line(limit, "dash")] : [])],
      annotations: near ? [{ xref: "paper", x: 1, y: limit, xanchor: "right", yanchor: "bottom", showarrow: false, text: shown.limit, font: { color: "var(--ink)" } }] : [],
    });
  }

  for (const name of ["device", "gpus", "micro"]) form.elements[name].addEventListener("input", () => changed(60));
  form.elements.preset.addEventListener("input", () => {
    const values = asked();
    for (const { name } of sliders) values.delete(name); // a preset has numbers of its own
    ask(values);
  });
  for (const box of form.querySelectorAll("[name=with]")) box.addEventListener("input", () => changed(60));
  form.addEventListener("submit", (event) => { event.preventDefault(); changed(0); });
  if (window.innerWidth <= NARROW) form.querySelector("details").open = false;
  if (memory) draw(memory);
  resting = setTimeout(recommend, REST);
  return { ask: () => ask(asked()) };
})();
