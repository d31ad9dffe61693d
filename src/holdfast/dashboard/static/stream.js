// The event stream: reads transitions, reconnects, and gives up on a connection without keep-alives.

import { headers, heard, OPTIONS, Problem, reloadIfLoggedOut } from "./api.js";

const IDLE_TIMEOUT = 6000; // milliseconds; the server sends a keep-alive every 2 s

/** Calls changed(transitions, missed) and state(live, error) until it is stopped; `last`: the event id to resume from. */
export class Stream {
  constructor(changed, state, last) {
    this.changed = changed;
    this.state = state;
    this.last = last;
    this.stopped = false;
    this.wake = null;
    this.run();
  }

  stop() {
    this.stopped = true;
    if (this.abort) this.abort.abort();
    if (this.wake) this.wake();
  }

  /** Reconnect now. */
  retry() {
    if (this.wake) this.wake();
  }

  async run() {
    let failures = 0;
    while (!this.stopped) {
      let wait = 1 + Math.random(); // after a stream that the server has ended
      try {
        await this.read(() => (failures = 0));
      } catch (error) {
        if (error instanceof Problem && (error.status === 401 || error.status === 403)) return this.state(false, error);
        if (this.stopped) return;
        failures += 1;
        wait = Math.min(15, 2 ** Math.min(failures - 1, 4)) + Math.random();
        this.state(false);
      }
      if (this.stopped) return;
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, wait * 1000);
        this.wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.wake = null;
    }
  }

  async read(connected) {
    this.abort = new AbortController();
    let idle = setTimeout(() => this.abort.abort(), IDLE_TIMEOUT);
    try {
      const response = await fetch("v1/events", {
        headers: headers(this.last ? { "Last-Event-ID": this.last } : {}),
        signal: this.abort.signal,
        ...OPTIONS,
      });
      heard();
      reloadIfLoggedOut(response);
      if (!response.ok) throw new Problem(response.status, "The event stream was refused");
      connected();
      this.state(true);
      const reader = response.body.getReader();
      const decoder = new TextDecoder();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        heard();
        clearTimeout(idle);
        idle = setTimeout(() => this.abort.abort(), IDLE_TIMEOUT);
        const text = rest + decoder.decode(value, { stream: true });
        const end = text.lastIndexOf("\n\n");
        if (end < 0) {
          rest = text;
          continue;
        }
        rest = text.slice(end + 2);
        this.parse(text.slice(0, end));
      }
    } finally {
      clearTimeout(idle);
    }
  }

  parse(text) {
    const transitions = [];
    let missed = false;
    for (const block of text.split("\n\n")) {
      let kind = "message";
      let data = "";
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) kind = line.slice(7);
        else if (line.startsWith("data: ")) data = line.slice(6);
        else if (line.startsWith("id: ")) this.last = line.slice(4);
      }
      if (kind === "job") transitions.push(JSON.parse(data));
      else if (kind === "reset") missed = true;
    }
    if (transitions.length || missed) this.changed(transitions, missed);
  }
}
