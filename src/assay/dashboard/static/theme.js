// The reader's choice of light or dark, kept in the browser; without one the system decides. Runs before the page is drawn.
(() => {
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const stored = () => {
    try { return localStorage.getItem("assay-theme"); } catch { return null; }
  };
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const tell = () => {
    document.getElementById("theme")?.setAttribute("aria-pressed", String(dark()));
    document.dispatchEvent(new CustomEvent("assay:theme"));
  };
  if (["light", "dark"].includes(stored())) root.dataset.theme = stored();
  system.addEventListener("change", tell);
  document.addEventListener("DOMContentLoaded", () => {
    tell();
    document.getElementById("theme").addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      try { localStorage.setItem("assay-theme", root.dataset.theme); } catch { /* the choice holds for this page */ }
      tell();
    });
  });
})();
