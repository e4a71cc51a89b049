"use strict";
const box = document.getElementById("search");
const none = document.getElementById("none");
const parts = [...document.querySelectorAll("[data-words]")];
function narrow() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const part of parts) {
    const fits = words.every((word) => part.dataset.words.includes(word));
    part.hidden = !fits;
    shown += fits;
  }
  for (const group of document.querySelectorAll("[data-group]")) {
    group.hidden = !group.querySelector("[data-words]:not([hidden])");
  }
  none.hidden = shown > 0;
}
box.addEventListener("input", narrow);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== box) {
    event.preventDefault();
    box.focus();
  }
});
narrow();
