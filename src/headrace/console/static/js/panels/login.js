// The login, when the server asks who this is: a token, which the browser keeps as a cookie no script reads.

import { h, put } from "../dom.js";
import { change } from "../api.js";
import { setUser } from "../user.js";
import { command, problemBox } from "../parts/notice.js";

/** Shows the form in `root`; done once the server has taken a token. */
export function showLogin(root) {
  return new Promise((resolve) => {
    const token = h("input", { type: "password", id: "token", name: "token", required: true, autocomplete: "current-password", spellcheck: "false" });
    const failure = h("div", {});
    const button = h("button", { class: "primary", type: "submit" }, "Sign in");

    async function submit(event) {
      event.preventDefault();
      button.disabled = true;
      put(failure);
      try {
        setUser(await change("POST", "/v1/login", { token: token.value.trim() }));
        resolve();
      } catch (error) {
        put(failure, problemBox(error));
        token.select();
      }
      button.disabled = false;
    }

    put(root, h("form", { class: "login card", onsubmit: submit },
      h("h1", { tabindex: "-1" }, "Sign in"),
      h("p", { class: "muted" }, "This console requires a login. Paste your token."),
      h("label", { class: "field" }, h("span", { class: "label" }, "Token"), token), failure, button,
      h("details", {}, h("summary", {}, "I have none"),
        h("p", {}, "An administrator creates one, with the role reader, writer or admin:"),
        command("headrace console token add NAME --role reader"))));
    token.focus();
  });
}
