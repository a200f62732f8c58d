// Contents that follow, links that open what they point to, and each figure as a file. The page is whole without it.
const open = () => {
  const part = location.hash && document.getElementById(location.hash.slice(1));
  if (part && part.tagName === "DETAILS") part.open = true;
};
addEventListener("hashchange", open);
open();
const links = new Map([...document.querySelectorAll(".contents a")].map(link => [link.hash.slice(1), link]));
const watch = new IntersectionObserver(seen => {
  for (const one of seen) links.get(one.target.id)?.toggleAttribute("aria-current", one.isIntersecting);
}, {rootMargin: "-10% 0px -60% 0px"});
document.querySelectorAll("section[id]").forEach(part => watch.observe(part));
for (const drawing of document.querySelectorAll("figure svg")) {
  const save = document.createElement("button");
  save.className = "save";
  save.textContent = "SVG";
  save.title = "Save this figure as a file";
  save.onclick = () => {
    const style = getComputedStyle(document.documentElement);
    const text = new XMLSerializer().serializeToString(drawing)
      .replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], {type: "image/svg+xml"}));
    link.download = `${(drawing.getAttribute("aria-label") || "figure").replace(/[^\w]+/g, "-").slice(0, 60)}.svg`;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  drawing.after(save);
}
