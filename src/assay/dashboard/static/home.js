// The first page follows what runs, as long as it is in view and the reader is not on one of its links.
const now = document.getElementById("now");
setInterval(async () => {
  if (document.hidden || now.contains(document.activeElement)) return;
  try {
    const found = await fetch("/?part=now");
    const text = await found.text();
    if (found.ok && text !== now.dataset.shown) now.innerHTML = now.dataset.shown = text; // the server has escaped all text
  } catch { /* the page stays as it was; the next look may succeed */ }
}, 3000);
