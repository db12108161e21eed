
const about = document.getElementById("about");
const tell = (bar) => { about.textContent = bar.getAttribute("aria-label"); };

document.addEventListener("pointerover", (event) => {
  const bar = event.target.closest(".row .bar");
  if (bar) tell(bar);
});

document.addEventListener("focusin", (event) => {
  const bar = event.target.closest(".row .bar");
  if (!bar) return;
  for (const other of bar.parentElement.querySelectorAll(".bar")) {
    other.tabIndex = other === bar ? 0 : -1;
    other.setAttribute("aria-selected", String(other === bar));
  }
  tell(bar);
});

document.addEventListener("keydown", (event) => {
  const bar = event.target.closest(".row .bar");
  if (!bar) return;
  const bars = [...bar.parentElement.querySelectorAll(".bar")];
  const at = bars.indexOf(bar);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: bars.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  bars[Math.min(bars.length - 1, Math.max(0, to))].focus();
});
