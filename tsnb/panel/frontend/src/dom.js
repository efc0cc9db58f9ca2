// Ways to touch the page: make an element, and change a text only if it differs (no needless layout).

/** make("td", "tsnb-n", "text" | child, ...) */
export function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

/** svgNode("g", { "stroke-width": 2 }, child, ...) */
export function svgNode(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function style(element, name, value) {
  if (element.style.getPropertyValue(name) !== value) element.style.setProperty(name, value);
}

export function attribute(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** A button; `clicked` is called without arguments, unless it is grey. */
export function button(label, className, clicked) {
  const element = make("button", `tsnb-button ${className}`, label);
  element.type = "button";
  element.onclick = () => isGrey(element) || clicked();
  return element;
}

/** Grey a control that cannot act. It keeps the focus and its place in the walk by Tab, so that its reason can be heard and read. */
export const grey = (element, on) => attribute(element, "aria-disabled", Boolean(on));

export const isGrey = (element) => element.getAttribute("aria-disabled") === "true";

const HEARD_MS = 5000;

/** A line for screen readers, spoken when it changes. It is empty again some seconds later: whoever reads the page then would take it
 * for what is so now. */
export class Spoken {
  constructor(tag) {
    this.element = make(tag, "tsnb-unseen");
    attribute(this.element, "role", "status");
  }

  say(text) {
    put(this.element, text);
    this.saidMs = performance.now();
  }

  /** Called with each drawing. */
  fade() {
    if (performance.now() - this.saidMs > HEARD_MS) put(this.element, "");
  }
}

/** label and value, as in "loader 9.6 batches/s" */
export function pair(label, className) {
  const value = make("b", "tsnb-value");
  const box = make("div", `tsnb-pair ${className || ""}`, make("span", "tsnb-soft", label), value);
  return { box, value };
}

/** A choice with a label in front: {box, select}; `words` by value say what each means. */
export function choice(label, words, chosen) {
  const select = make("select", "tsnb-select", ...Object.keys(words).map((word) => Object.assign(make("option", "", word), { value: word, title: words[word] })));
  attribute(select, "aria-label", label);
  let was = select.value;
  select.onfocus = () => (was = select.value);
  select.onchange = () => (isGrey(select) ? (select.value = was) : chosen(select.value));
  return { box: make("label", "tsnb-pair tsnb-mode", make("span", "tsnb-soft", label), select), select };
}
