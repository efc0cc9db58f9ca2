// Colours. The trials' are here and nowhere else; light or dark is whatever the page around the panel is, found by
// its colour, so that it works in any notebook.

export const COLOURS = [
  // as far from each other as eight can be, for colour-blind eyes too, and each with a contrast of 3:1 on white at least
  // (a test computes it)
  "#165E9F", "#E26802", "#068F78", "#C772BA", "#0096F5", "#B54C0D", "#7C55D5", "#7C4130",
];

/** On a dark ground: the same hues, lighter, so that each has a contrast of 3:1 there too. */
export const DARK = ["#528BBD", "#FFBB03", "#00C29B", "#B9A4FB", "#9CE1E8", "#D68230", "#B952FF", "#6F7C65"];

/** The colour of a trial, the same everywhere and for ever. */
export const colour = (lane) => COLOURS[lane % COLOURS.length];
export const colourIn = (lane, dark) => (dark ? DARK : COLOURS)[lane % COLOURS.length];

/** As a style has it: light or dark is what the page is. */
export const paint = (lane) => `var(--tsnb-c${(lane % COLOURS.length) + 1})`;

/** Past the palette's end colours come again, as dashed lines; their shapes differ (shapes.js). */
export const again = (lane) => Math.floor(lane / COLOURS.length) % 2 === 1;

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
  (dark ? DARK : COLOURS).forEach((one, k) => root.style.setProperty(`--tsnb-c${k + 1}`, one));
  const of = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  root.style.setProperty("--tsnb-ground", hex(ground));
  const family = getComputedStyle(root).fontFamily;
  return { ground: hex(ground), text: of("--tsnb-fg"), soft: of("--tsnb-soft"), line: of("--tsnb-line"), font: `10.5px ${family}`, alpha: dark ? 0.82 : 0.88, dark };
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

/** `part` of one colour over another: canvases know no color-mix everywhere yet. */
export function mix(front, back, part) {
  const numbers = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  const [a, b] = [numbers(front), numbers(back)];
  return `rgb(${a.map((v, k) => Math.round(v * part + b[k] * (1 - part))).join(",")})`;
}
