// Runs before the first paint, so that the page never shows in the wrong theme. `src/app/theme.ts` writes the choice.
(() => {
  try {
    const theme = localStorage.getItem("arclog.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage may be switched off: then the system's preference holds.
  }
})();
