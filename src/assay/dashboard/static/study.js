// One study: the state of each cell as its log tells it, and memory against time, linked with the table of rows. While it
// runs, figure and table are asked for again when cells have ended.
(() => {
  const cells = document.getElementById("cells");
  const answer = document.getElementById("answer");
  const marked = new Set();
  const MOST_NAMED = 14;
  const REST = 1000; // milliseconds in which cells that end together are one change
  const short = (name) => (name.length > 28 ? `${name.slice(0, 27)}…` : name);
  const rows = () => [...document.querySelectorAll("#rows tbody tr")];
  let filling = 0;

  function follow() {
    const lines = new Map([...cells.tBodies[0].rows].map((line) => [line.dataset.cell, line]));
    const ended = new Set();
    for (const [name, line] of lines) if (line.dataset.ended) ended.add(name);
    const bar = document.getElementById("done");
    const base = `/studies/${encodeURIComponent(cells.dataset.study)}/events?offset=`;
    const source = new EventSource(base + cells.dataset.offset);
    source.onmessage = (event) => {
      const before = ended.size;
      const batches = JSON.parse(event.data);
      for (const one of batches.flatMap((batch) => batch.cells)) {
        const line = lines.get(one.cell);
        if (!line) continue;
        line.cells[1].textContent = one.state;
        if (one.run && line.cells[2].textContent !== one.run) {
          const link = document.createElement("a");
          link.href = `/runs/${encodeURIComponent(one.run)}`;
          link.textContent = one.run;
          line.cells[2].replaceChildren(link);
        }
        if (one.ended) ended.add(one.cell); else ended.delete(one.cell);
      }
      bar.value = ended.size;
      const progress = batches[batches.length - 1]?.progress;
      document.getElementById("ended").textContent = progress || `${ended.size} of ${lines.size} have ended`;
      if (ended.size !== before && !filling) filling = setTimeout(fill, REST);
    };
    source.addEventListener("over", () => {
      source.close();
      document.getElementById("status").textContent = "ended";
      document.getElementById("reload").classList.remove("hidden");
    });
  }

  async function fill() {
    filling = 0;
    try {
      const found = await fetch(`${location.pathname}?part=answer`);
      if (!found.ok || answer.contains(document.activeElement)) return; // the reader is in the table
      answer.innerHTML = await found.text(); // the server has escaped all text
      wire();
    } catch { /* the stream says that the dashboard does not answer */ }
  }

  function draw() {
    const { memory, time, points } = JSON.parse(document.getElementById("points").textContent);
    const gibi = Math.min(...points.map((one) => one.bytes)) >= 2 ** 30;
    const scale = gibi ? 2 ** 30 : 2 ** 20;
    const slow = Math.max(...points.map((one) => one.seconds)) >= 0.1;
    const times = points.map((one) => (slow ? one.seconds : 1000 * one.seconds));
    const middle = (Math.min(...times) + Math.max(...times)) / 2;
    const trace = {
      x: times, y: points.map((one) => one.bytes / scale),
      hovertext: points.map((one) => `<b>${escaped(one.row)}</b><br>${escaped(one.text)}`), hoverinfo: "text",
      text: points.map((one) => (points.length <= MOST_NAMED || one.on_front ? escaped(short(one.row)) : "")),
      textposition: times.map((one) => (one > middle ? "middle left" : "middle right")), cliponaxis: false,
      customdata: points.map((one) => one.row), mode: "markers+text", type: "scatter",
      marker: {
        opacity: 1,
        size: points.map((one) => (marked.has(one.row) ? 17 : 11)),
        color: points.map((one) => (one.on_front ? Plots.series(one.number) : "var(--paper)")),
        line: { width: 2, color: points.map((one) => Plots.series(one.number)) },
      },
    };
    return Plots.draw("front", [trace], {
      dragmode: "select", xaxis: { title: `${time}, ${slow ? "seconds" : "milliseconds"}` },
      yaxis: { title: `${memory}, ${gibi ? "GiB" : "MiB"}` },
    });
  }
  // Plotly reads a few tags in hover texts, so names are escaped for it as for a page.
  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

  function show() {
    for (const row of rows()) {
      row.classList.toggle("chosen", marked.has(row.dataset.row));
      row.querySelector(".mark").checked = marked.has(row.dataset.row);
    }
    document.getElementById("unmark").disabled = !marked.size;
    return document.getElementById("front") && draw();
  }
  function mark(names, only) {
    if (only) marked.clear();
    for (const name of names) marked.add(name);
    show();
  }

  function wire() {
    for (const row of rows()) {
      row.querySelector(".mark").addEventListener("change", (event) => {
        if (event.target.checked) marked.add(row.dataset.row); else marked.delete(row.dataset.row);
        show();
      });
    }
    document.getElementById("unmark")?.addEventListener("click", () => mark([], true));
    const figure = document.getElementById("front");
    if (!rows().length) return;
    show()?.then(() => {
      // Drawing anew takes the rectangle away, which Plotly reports as a selection of nothing.
      figure.on("plotly_selected", (event) => {
        if (event?.points.length) mark(event.points.map((one) => one.customdata), true);
      });
      figure.on("plotly_click", (event) => mark(event.points.map((one) => one.customdata), false));
    });
  }

  wire();
  if (cells.dataset.live) follow();
})();
