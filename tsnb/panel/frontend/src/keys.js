// JupyterLab hears every key of the page first: Enter edits a cell, arrows leave it, "d d" deletes it. While the focus
// is in the panel plain keys are the panel's; those with Ctrl, Alt, Shift or Command stay JupyterLab's (to save, to run).

const MARK = "data-lm-suppress-shortcuts"; // Lumino leaves keys alone below an element that has it

/** Whether a field's form is to be sent: JupyterLab takes Enter in a cell for itself, and then a browser sends nothing. */
const isEntered = ({ key, target, isComposing, shiftKey, ctrlKey, altKey, metaKey }) =>
  key === "Enter" && target.tagName === "INPUT" && target.form && !isComposing && !shiftKey && !ctrlKey && !altKey && !metaKey;

/** Returns how to stop. */
export function keepPlainKeys(root) {
  const before = (event) => {
    if (!root.contains(event.target)) return;
    if (isEntered(event)) (event.preventDefault(), event.target.form.requestSubmit());
    root.toggleAttribute(MARK, !(event.ctrlKey || event.altKey || event.metaKey || (event.shiftKey && event.key === "Enter")));
  };
  window.addEventListener("keydown", before, true);
  return () => window.removeEventListener("keydown", before, true);
}
