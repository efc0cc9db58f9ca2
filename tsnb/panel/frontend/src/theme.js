// Light or dark: whatever the page around the panel is, found by its colour, so that it works in any notebook.

/** The colour behind an element, as [r, g, b]. */
function behind(element) {
  for (let node = element; node; node = node.parentElement) {
    const numbers = (getComputedStyle(node).backgroundColor.match(/[\d.]+/g) || []).map(Number);
    if (numbers.length === 3 || (numbers.length === 4 && numbers[3] > 0.5)) return numbers.slice(0, 3);
  }
  return [255, 255, 255];
}

const hex = (rgb) => "#" + rgb.map((v) => Math.round(v).toString(16).padStart(2, "0")).join("");

/** Mark the panel as light or dark and return what the canvases paint with. */
export function readTheme(root) {
  const ground = behind(root.parentElement || root);
  const dark = ground[0] * 0.3 + ground[1] * 0.59 + ground[2] * 0.11 < 128;
  root.dataset.theme = dark ? "dark" : "light";
  const of = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const family = getComputedStyle(root).fontFamily;
  return { ground: hex(ground), soft: of("--tsnb-soft"), line: of("--tsnb-line"), font: `10.5px ${family}`, alpha: dark ? 0.82 : 0.88 };
}

/** Call back when the page's theme changes; returns how to stop. */
export function onThemeChange(changed) {
  const observer = new MutationObserver(() => requestAnimationFrame(changed));
  for (const node of [document.documentElement, document.body]) {
    observer.observe(node, { attributes: true, attributeFilter: ["class", "style", "data-jp-theme-name", "data-jp-theme-light", "data-theme"] });
  }
  const query = matchMedia("(prefers-color-scheme: dark)");
  query.addEventListener("change", changed);
  return () => {
    observer.disconnect();
    query.removeEventListener("change", changed);
  };
}
