/** Light or dark: the system's preference, unless somebody chose. The choice is kept in this browser (`public/theme.js`). */
import { Store, useStore } from "../lib/store.ts";

export type Theme = "system" | "light" | "dark";

const KEY = "arclog.theme";

function kept(): Theme {
  const chosen = document.documentElement.dataset.theme;
  return chosen === "light" || chosen === "dark" ? chosen : "system";
}

const theme = new Store<Theme>(kept());

export function useTheme(): Theme {
  return useStore(theme);
}

export function setTheme(chosen: Theme): void {
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  try {
    if (chosen === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, chosen);
  } catch {
    // Storage is switched off: the choice holds until the page is left.
  }
  theme.set(chosen);
}

export function isDark(): boolean {
  const chosen = theme.get();
  return chosen === "dark" || (chosen === "system" && window.matchMedia("(prefers-color-scheme: dark)").matches);
}
