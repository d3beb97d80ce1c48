// Light, dark, or as the system has it. The choice outlives the page.
import { useState } from "preact/hooks";

import { ofBrowser } from "./storage";

export type Theme = "system" | "light" | "dark";

const key = "moeplan.theme";
const themes: readonly Theme[] = ["system", "light", "dark"];

function stored(): Theme {
  const value = ofBrowser.get(key);
  return themes.find((theme) => theme === value) ?? "system";
}

function apply(theme: Theme): void {
  if (theme === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
}

apply(stored());

export function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState(stored());
  const next = (): void => {
    const following = themes[(themes.indexOf(theme) + 1) % themes.length]!;
    ofBrowser.set(key, following);
    apply(following);
    setTheme(following);
  };
  return [theme, next];
}
