// The token of this browser: kept by each open tab, passed on to new tabs, and removed from all of them by a logout.
//
// It is in the session storage of a tab, which ends with the tab: after the last tab is closed, the browser has no
// token. A new tab asks the open ones over a channel that only pages of the same origin can use.

const KEY = "holdfast.token";
const ANSWER = 300; // milliseconds that a new tab waits for another one

let token = sessionStorage.getItem(KEY) || "";
let accepted = false; // by the server
let received = () => {};
const channel = new BroadcastChannel(`holdfast token ${new URL(".", location.href).pathname}`);

channel.onmessage = ({ data }) => {
  if (data.kind === "ask" && accepted && token) channel.postMessage({ kind: "token", token });
  else if (data.kind === "token" && !token) {
    keep(data.token);
    received();
  } else if (data.kind === "logout" && token) {
    keep("");
    location.reload();
  }
};

function keep(given) {
  token = given;
  accepted = false;
  if (given) sessionStorage.setItem(KEY, given);
  else sessionStorage.removeItem(KEY);
}

export const current = () => token;

/** Use a token that the user has entered. */
export const useToken = keep;

/** The server has accepted the token: pass it on to tabs that wait for one. */
export function accept() {
  accepted = true;
  if (token) channel.postMessage({ kind: "token", token });
}

/** Remove the token from all tabs. */
export function logOut() {
  keep("");
  channel.postMessage({ kind: "logout" });
}

/** Ask the other tabs for their token; resolves with whether one has it. */
export function ask() {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), ANSWER);
    received = () => {
      clearTimeout(timer);
      resolve(true);
    };
    channel.postMessage({ kind: "ask" });
  });
}

/** Call a function when another tab passes on its token. */
export function onReceived(call) {
  received = call;
}
