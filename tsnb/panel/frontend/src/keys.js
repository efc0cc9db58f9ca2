// JupyterLab hears every key of the page first: Enter edits a cell, arrows leave it, "d d" deletes it. While the focus
// is in the panel plain keys are the panel's; those with Ctrl, Alt, Shift or Command stay JupyterLab's (to save, to run).

const MARK = "data-lm-suppress-shortcuts"; // Lumino leaves keys alone below an element that has it

/** Returns how to stop. */
export function keepPlainKeys(root) {
  const before = (event) => {
    if (!root.contains(event.target)) return;
    root.toggleAttribute(MARK, !(event.ctrlKey || event.altKey || event.metaKey || (event.shiftKey && event.key === "Enter")));
  };
  window.addEventListener("keydown", before, true);
  return () => window.removeEventListener("keydown", before, true);
}
