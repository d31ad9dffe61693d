// One event stream per browser: the visible tabs elect a leader, which reads the stream and passes on what it hears.
//
// Browsers allow six connections per host over HTTP/1.1, so a stream in each tab would leave none for requests.
// A leader sends a beat every second. A tab that misses the beats leads; of two leaders, the one with the lower id
// stays. A hidden tab neither leads nor follows.

import { heard, lastHeard } from "./api.js";
import { Stream } from "./stream.js";

const BEAT = 1000; // milliseconds between two beats of the leader
const MISSED = 2500; // milliseconds without a beat after which a tab leads
const ANSWER = 150; // milliseconds that a new tab waits for the leader's answer

export class Live {
  /** Calls changed(transitions, missed) and state(live, error). */
  constructor(changed, state) {
    this.changed = changed;
    this.state = state;
    this.id = Math.random();
    this.heardAt = null; // when the leader last heard from the server, by its clock
    this.last = null; // the event id up to which this browser has heard
    this.stream = null;
    this.live = null; // not known yet
    this.refused = false; // the server refuses the stream to this token
    this.channel = new BroadcastChannel(`holdfast ${new URL(".", location.href).pathname}`);
    this.channel.onmessage = ({ data }) => this.receive(data);
    this.shown = () => (document.hidden ? this.leave() : this.join());
    this.hidden = () => this.leave();
    document.addEventListener("visibilitychange", this.shown);
    window.addEventListener("pagehide", this.hidden);
    this.shown();
  }

  stop() {
    document.removeEventListener("visibilitychange", this.shown);
    window.removeEventListener("pagehide", this.hidden);
    this.leave();
    this.channel.close();
  }

  /** Reconnect now. */
  retry() {
    this.stream?.retry();
  }

  join() {
    this.joined = true;
    this.channel.postMessage({ kind: "join" });
    this.waitForLeader(ANSWER);
  }

  leave() {
    this.joined = false;
    clearTimeout(this.waiting);
    this.handOver();
    this.tell(false);
  }

  handOver() {
    if (this.stream) this.channel.postMessage({ kind: "resigned" });
    this.resign();
  }

  waitForLeader(time) {
    clearTimeout(this.waiting);
    if (this.joined && !this.stream && !this.refused)
      this.waiting = setTimeout(() => this.lead(), time + Math.random() * ANSWER);
  }

  lead() {
    const changed = (transitions, missed) => {
      if (this.stream !== stream) return;
      this.changed(transitions, missed);
      this.channel.postMessage({ kind: "changed", transitions, missed, last: stream.last });
    };
    const state = (live, error) => {
      if (this.stream !== stream) return;
      this.tell(live, error);
      this.refused = Boolean(error);
      if (error) this.handOver();
      else this.beat();
    };
    if (this.live) this.tell(false);
    const stream = new Stream(changed, state, this.last);
    this.stream = stream;
    this.beating = setInterval(() => this.beat(), BEAT);
    this.beat();
  }

  beat() {
    const { id, live, stream } = this;
    this.channel.postMessage({ kind: "beat", id, live, last: stream.last, heardAt: lastHeard() });
  }

  resign() {
    if (!this.stream) return;
    clearInterval(this.beating);
    this.last = this.stream.last;
    this.stream.stop();
    this.stream = null;
  }

  tell(live, error) {
    const changed = live !== this.live;
    this.live = live;
    if (changed || error) this.state(live, error);
  }

  receive(data) {
    if (!this.joined) return;
    if (data.kind === "join" && this.stream) this.beat();
    else if (data.kind === "resigned") this.waitForLeader(0);
    else if (data.kind === "beat" && this.stream && data.id > this.id) this.beat();
    else if (data.kind === "beat") {
      this.resign();
      this.last = data.last;
      if (data.heardAt !== this.heardAt) heard();
      this.heardAt = data.heardAt;
      this.tell(data.live);
      this.waitForLeader(MISSED);
    } else if (data.kind === "changed" && !this.stream) {
      this.last = data.last;
      this.changed(data.transitions, data.missed);
    }
  }
}
