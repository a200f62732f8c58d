// Filters the table of runs while the reader types. Without this script the form and the links do the same.
const form = document.getElementById("filters");
const target = document.getElementById("runs");
const overlay = document.getElementById("overlay");
const ticked = new Set(); // runs that stay chosen while the table shows others
let waiting = 0;
let latest = 0;

async function show(address, { keep = false } = {}) {
  const number = ++latest;
  const url = new URL(address, location.href);
  url.searchParams.set("part", "table");
  let answer;
  try {
    answer = await fetch(url);
  } catch {
    said("The dashboard does not answer. Is it still running?");
    return;
  }
  if (number !== latest) return; // a later question has been asked
  said("");
  if (!answer.ok) { location.assign(address); return; }
  // The server's own page, with all text escaped; it has no scripts, and the policy would run none.
  target.innerHTML = await answer.text();
  tick();
  if (!keep) history.replaceState(null, "", address);
}

function said(text) { document.getElementById("said").textContent = text; }

function address() {
  const values = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  return `/runs?${values}`;
}

function tick() {
  for (const box of target.querySelectorAll("[name=run]")) box.checked = ticked.has(box.value);
  document.getElementById("ticked").textContent = ticked.size ? `${ticked.size} ticked` : "";
}
target.addEventListener("change", ({ target: box }) => {
  if (box.checked) ticked.add(box.value); else ticked.delete(box.value);
  tick();
});
overlay.addEventListener("submit", (event) => {
  event.preventDefault();
  location.assign(`/runs/overlaid?${new URLSearchParams([...ticked].map((run) => ["run", run]))}`);
});
for (const box of target.querySelectorAll("[name=run]:checked")) ticked.add(box.value); // those of a page that is shown again
tick();

form.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => show(address()), 120);
});
form.addEventListener("submit", (event) => { event.preventDefault(); show(address()); });
target.addEventListener("click", (event) => {
  const link = event.target.closest("thead a, .pages a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const chosen = new URL(link.href).searchParams;
  form.elements.sort.value = chosen.get("sort") ?? "run";
  form.elements.order.value = chosen.get("order") ?? "down";
  const title = link.textContent.replace(/ [↓↑]$/, "");
  show(link.getAttribute("href")).then(() => {
    const again = [...target.querySelectorAll("thead a")].find((one) => one.textContent.startsWith(title));
    (again ?? target).focus?.();
  });
});
// Runs that train show their newest figures, as long as the page is in view and nobody reads a later page.
setInterval(() => {
  if (!document.hidden && !target.contains(document.activeElement)) show(location.href, { keep: true });
}, 5000);
