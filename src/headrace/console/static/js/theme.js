// Light or dark, before anything is painted: the reader's choice if there is one, else the system's.
// A classic script, so that it blocks the first paint and the page never flashes.
(() => {
  const KEY = "headrace.theme";
  const root = document.documentElement;

  function stored() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage may be forbidden; the system's choice holds then
    }
  }

  function apply(choice) {
    if (choice === "light" || choice === "dark") root.dataset.theme = choice;
    else delete root.dataset.theme;
  }

  apply(stored());

  window.headraceTheme = {
    /** "light", "dark" or "system". */
    choice: () => root.dataset.theme ?? "system",
    choose(choice) {
      apply(choice);
      try {
        if (choice === "system") localStorage.removeItem(KEY);
        else localStorage.setItem(KEY, choice);
      } catch {
        // kept for this page only
      }
    },
  };
})();
