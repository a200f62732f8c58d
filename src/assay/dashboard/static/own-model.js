// Asks again while the step of a model is followed.
const own = document.getElementById("own");
const searching = () => own.querySelector("[data-state=searching]");

async function again() {
  try {
    const found = await fetch(`/what-if/model?part=answer&${location.search.slice(1)}`);
    if (found.ok) own.innerHTML = await found.text(); // the server has escaped all text
  } catch { /* the next look may succeed */ }
  if (searching()) setTimeout(again, 1000);
}
if (searching()) setTimeout(again, 1000);
