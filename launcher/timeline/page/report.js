"use strict";
// Shows the object of #data, which report_page.hpp describes. Times in here are its ticks, 0.1 us.
const data = JSON.parse(document.getElementById("data").textContent);
const by = (id) => document.getElementById(id);
const Kind = { collective: 0, transfer: 1, gradients: 2, step: 3, checkpoint: 4 };

const didNotEnd = 8;

// As exact as `step`, of what is compared.
function timeText(ticks, step = ticks / 100) {
  const units = [[1e7, " s"], [1e4, " ms"], [10, " \u00b5s"]];
  const [unit, name] = units.find(([size]) => ticks >= size) ?? units[2];
  const digits = Math.ceil(-Math.log10(Math.max(step, 1) / unit));
  return (ticks / unit).toFixed(Math.min(7, Math.max(0, digits))) + name;
}
const percentText = (share) => (100 * share).toFixed(1) + " %";

// A lane is what one thing after the other goes into: a rank's steps, its waits, a group's collectives.
class Lane {
  constructor(kind, label, group) {
    this.kind = kind;
    this.label = label;
    this.group = group;  // of collectives
    this.start = [];
    this.end = [];
    this.name = [];
    this.number = [];
    this.what = [];
    this.waited = [];  // of a collective: until the last rank came
    this.last = [];    // and which that was; -1: not known
    this.reach = [];   // when this one and all before it have ended, as they may overlap
  }
  add(what, start, end, name, number) {
    this.what.push(what);
    this.start.push(start);
    this.end.push(end);
    this.name.push(name);
    this.number.push(number);
    this.waited.push(0);
    this.last.push(-1);
    this.reach.push(Math.max(end, this.reach.at(-1) ?? 0));
  }
  // The first that may end after this time.
  find(time) {
    let low = 0;
    let high = this.reach.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.reach[middle] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function laneOf(rank, what, group) {
  const key = what === Kind.step ? "steps" : what === Kind.collective ? "group " + (group + 1) : "waits";
  let lane = rank.lanes.get(key);
  if (!lane) {
    lane = new Lane(what === Kind.step ? "step" : what === Kind.collective ? "group" : "wait", key, group);
    rank.lanes.set(key, lane);
  }
  return lane;
}

// In others a rank does not wait for all, and on a GPU they begin when they are launched.
function waitsForAll(group, name) {
  return !data.groups[group].gpu && /^(all_reduce|all_gather|reduce_scatter|all_to_all|barrier)\b/.test(data.names[name]);
}

// Which ranks came to a collective: of a group those with the same number. A rank whose numbers begin anew runs another program.
class Meetings {
  constructor() {
    this.came = new Map();
    this.before = new Map();
  }
  note(group, number, one) {
    const of = one.rank.rank + " " + group;
    const before = this.before.get(of) ?? { number: 0, program: 0 };
    if (number <= before.number) ++before.program;
    before.number = number;
    this.before.set(of, before);
    const key = group + " " + before.program + " " + number;
    const came = this.came.get(key);
    if (came) came.push(one);
    else this.came.set(key, [one]);
  }
  // Those to which all came.
  end() {
    for (const [key, came] of this.came) {
      if (came.length > 1 && came.length === data.groups[+key.split(" ")[0]].size) noteMeeting(came);
    }
  }
}

// By rank; attempts follow one another in the same lanes.
function readRanks() {
  const ranks = new Map();
  data.attempts.forEach((attempt) => {
    const meetings = new Meetings();
    attempt.ranks.forEach((part) => {
      if (!ranks.has(part.rank)) ranks.set(part.rank, { rank: part.rank, lanes: new Map(), parts: [] });
      const rank = ranks.get(part.rank);
      rank.parts.push({ attempt: attempt.attempt, ...part });
      let time = part.started;
      for (let i = 0; i < part.what.length; ++i) {
        time += part.start[i];
        const what = part.what[i] % didNotEnd;
        const lane = laneOf(rank, what, part.group[i]);
        lane.add(part.what[i], time, time + part.length[i], part.name[i], part.number[i]);
        if (what !== Kind.collective || !waitsForAll(part.group[i], part.name[i])) continue;
        meetings.note(part.group[i], part.number[i], { rank, lane, index: lane.start.length - 1 });
      }
    });
    meetings.end();
  });
  return [...ranks.values()].sort((a, b) => a.rank - b.rank);
}

function noteMeeting(came) {
  let last = came[0];
  for (const one of came) if (one.lane.start[one.index] > last.lane.start[last.index]) last = one;
  const time = last.lane.start[last.index];
  // Else they are of different programs, as a ring may have lost the first.
  if (came.some((one) => one.lane.end[one.index] < time)) return;
  for (const one of came) {
    const until = Math.min(time, one.lane.end[one.index]);
    one.lane.waited[one.index] = until - one.lane.start[one.index];
    one.lane.last[one.index] = last.rank.rank;
  }
}

const ranks = readRanks();
const end = ranks.reduce((most, rank) => rank.parts.reduce((time, part) => Math.max(time, part.ended), most), 1);

// Colours --------------------------------------------------------------------------------------------

const hues = { all_reduce: 215, broadcast: 35, all_gather: 150, reduce_scatter: 265, barrier: 0, reduce: 190, gather: 120, scatter: 60, all_to_all: 300 };
const collectiveStyles = data.names.map((name) => {
  const word = name.split(/[ ,]/)[0];
  const hue = hues[word] ?? 330;
  const much = word === "barrier" ? "8%" : "62%";
  return { full: `hsl(${hue} ${much} 45%)`, pale: `hsl(${hue} ${much} 78%)`, word };
});
const unfinished = { full: "#d3302f", pale: "#d3302f", word: "did not end" };
const otherStyles = [
  null,
  { full: "#2a9d8f", pale: "#2a9d8f", word: "wait for a transfer" },
  { full: "#d9822b", pale: "#d9822b", word: "wait for gradients" },
  { full: "#7d8896", pale: "#a7b0bb", word: "step" },
  { full: "#8e44ad", pale: "#8e44ad", word: "checkpoint" },
];
function styleOf(lane, i) {
  if (lane.what[i] >= didNotEnd) return unfinished;
  return lane.what[i] === Kind.collective ? collectiveStyles[lane.name[i]] : otherStyles[lane.what[i]];
}

function fillLegend() {
  const seen = new Set();
  const styles = new Map();
  for (const { lane } of rows) {
    for (let i = 0; i < lane.start.length; ++i) {
      const style = styleOf(lane, i);
      styles.set(style.word, style);
    }
  }
  styles.forEach((style) => {
    if (seen.has(style.word)) return;
    seen.add(style.word);
    const entry = document.createElement("span");
    const box = document.createElement("i");
    box.style.background = style.full;
    entry.append(box, style.word);
    by("legend").append(entry);
  });
}

// The timeline ---------------------------------------------------------------------------------------

const margin = 90;
const heights = { step: 10, wait: 8, group: 16 };
const axis = 22;
const view = { from: 0, to: end };
const rows = [];  // { lane, rank, top, height }

function layOut() {
  let top = axis;
  for (const rank of ranks) {
    rank.top = top;
    for (const kind of ["step", "wait", "group"]) {
      for (const lane of rank.lanes.values()) {
        if (lane.kind !== kind) continue;
        rows.push({ lane, rank, top, height: heights[kind] });
        top += heights[kind] + 2;
      }
    }
    if (rank.lanes.size === 0) top += heights.group;
    top = Math.max(top, rank.top + 16);
    rank.bottom = top;
    top += 7;
  }
  return top;
}
const fullHeight = layOut();

const scroller = by("scroller");
const canvas = by("timeline");
const context = canvas.getContext("2d");
by("extent").style.height = fullHeight + "px";

// The canvas stays in view, and shows what has been scrolled to: one of all ranks may be too high.
const shownHeight = () => Math.min(fullHeight, Math.max(120, Math.round(window.innerHeight * 0.7)));
const isShown = (one, top, height) => one.top < top + height && (one.bottom ?? one.top + one.height) > top + axis;

// Of a canvas as large as its place: its width, and a context in CSS pixels.
function fitCanvas(target, targetContext, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = target.parentElement.clientWidth;
  target.style.height = height + "px";
  target.width = Math.max(1, Math.round(width * ratio));
  target.height = Math.round(height * ratio);
  targetContext.setTransform(ratio, 0, 0, ratio, 0, 0);
  targetContext.clearRect(0, 0, width, height);
  targetContext.font = "12px system-ui, sans-serif";
  return width;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name);
}

const scale = () => (canvas.parentElement.clientWidth - margin) / (view.to - view.from);
const timeAt = (x) => view.from + (x - margin) / scale();

// What is narrower than a pixel is drawn once a pixel.
function drawLane(row, width) {
  const { lane, top, height } = row;
  const perTick = scale();
  const failures = [];
  for (let i = lane.find(view.from); i < lane.start.length && lane.start[i] <= view.to; ) {
    if (lane.end[i] < view.from) {
      ++i;
      continue;
    }
    if (lane.what[i] >= didNotEnd) failures.push(i);
    const left = margin + Math.max(0, (lane.start[i] - view.from) * perTick);
    const right = Math.min(width, margin + (lane.end[i] - view.from) * perTick);
    const style = styleOf(lane, i);
    context.fillStyle = lane.kind === "step" && lane.number[i] % 2 === 0 ? style.pale : style.full;
    context.fillRect(left, top, Math.max(1, right - left - (right - left > 3 ? 0.5 : 0)), height);
    if (lane.waited[i] * perTick > 1) {
      context.fillStyle = style.pale;
      const waited = Math.min(width, margin + (lane.start[i] + lane.waited[i] - view.from) * perTick);
      context.fillRect(left, top, waited - left, height);
    }
    const next = right - left >= 1 ? i + 1 : Math.max(i + 1, lane.find(timeAt(left + 1)));
    for (++i; i < next; ++i) if (lane.what[i] >= didNotEnd) failures.push(i);
  }
  context.fillStyle = unfinished.full;
  for (const i of failures) {
    const left = margin + Math.max(0, (lane.start[i] - view.from) * perTick);
    context.fillRect(left, top, Math.max(1, margin + (lane.end[i] - view.from) * perTick - left), height);
  }
}

function drawAxis(width, height) {
  const about = (view.to - view.from) / Math.max(2, (width - margin) / 110);
  const power = 10 ** Math.floor(Math.log10(about));
  const unit = [1, 2, 5, 10].find((factor) => factor * power >= about) * power;
  context.strokeStyle = colour("--line");
  context.fillStyle = colour("--faint");
  context.lineWidth = 1;
  for (let time = Math.ceil(view.from / unit) * unit; time <= view.to; time += unit) {
    const x = margin + (time - view.from) * scale();
    context.beginPath();
    context.moveTo(x, axis - 4);
    context.lineTo(x, height);
    context.stroke();
    context.fillText(timeText(time, unit), x + 3, 13);
  }
}

// The time that each attempt had, and what ended a rank.
function drawParts(rank, width) {
  for (const part of rank.parts) {
    const left = margin + (part.started - view.from) * scale();
    const right = margin + (part.ended - view.from) * scale();
    context.fillStyle = colour("--panel");
    const from = Math.max(margin, left);
    context.fillRect(from, rank.top, Math.min(width, right) - from, rank.bottom - rank.top);
    if (right < margin || right > width) continue;
    context.fillStyle = part.end === "exit code 0" ? colour("--faint") : colour("--bad");
    context.fillRect(right - 1, rank.top, 2, rank.bottom - rank.top);
  }
}

function draw() {
  const height = shownHeight();
  const width = fitCanvas(canvas, context, height);
  const top = scroller.scrollTop;
  drawAxis(width, height);
  context.save();
  context.beginPath();
  context.rect(0, axis, width, height - axis);
  context.clip();
  context.translate(0, -top);
  const shown = ranks.filter((rank) => isShown(rank, top, height));
  context.fillStyle = colour("--text");
  for (const rank of shown) context.fillText("rank " + rank.rank, 6, rank.top + 12);
  context.beginPath();
  context.rect(margin, top, width - margin, height);
  context.clip();
  for (const rank of shown) drawParts(rank, width);
  for (const row of rows) if (isShown(row, top, height)) drawLane(row, width);
  context.restore();
  const step = (view.to - view.from) / 1000;
  by("span").textContent = timeText(view.from, step) + " to " + timeText(view.to, step) + ": " + timeText(view.to - view.from);
}

let isDrawing = false;
function drawSoon() {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    draw();
  });
}

function show(from, to) {
  const length = Math.min(Math.max(to - from, 20), end);
  view.from = Math.min(Math.max(0, from), end - length);
  view.to = view.from + length;
  drawSoon();
}
function zoom(factor, at = (view.from + view.to) / 2) {
  show(at - (at - view.from) * factor, at + (view.to - at) * factor);
}
const move = (share) => show(view.from + (view.to - view.from) * share, view.to + (view.to - view.from) * share);

function itemAt(x, yShown) {
  const y = yShown + scroller.scrollTop;
  const row = rows.find((one) => y >= one.top && y < one.top + one.height + 2);
  if (!row || x < margin || yShown < axis) return null;
  const slack = 1.5 / scale();
  const { lane } = row;
  for (let i = lane.find(timeAt(x) - slack); i < lane.start.length && lane.start[i] <= timeAt(x) + slack; ++i) {
    if (lane.end[i] >= timeAt(x) - slack) return { row, index: i };
  }
  return null;
}

const on = (part) => (part?.host ? " on " + part.host : "");

function describe({ row, index }) {
  const { lane, rank } = row;
  const part = rank.parts.find((one) => one.started <= lane.start[index] && lane.start[index] <= one.ended);
  const what = lane.kind === "step" ? "step " + lane.number[index] : data.names[lane.name[index]];
  const lines = [
    "rank " + rank.rank + on(part) + ": " + what + (lane.kind === "group" ? ", operation " + lane.number[index] + " of " + lane.label : ""),
    timeText(lane.end[index] - lane.start[index]) + ", from " + timeText(lane.start[index], (view.to - view.from) / 1000),
  ];
  if (lane.what[index] >= didNotEnd) lines.push("it failed then, or the rank ended in it");
  if (lane.last[index] === rank.rank) lines.push("it came last");
  else if (lane.waited[index] > 0) lines.push(timeText(lane.waited[index]) + " of it until rank " + lane.last[index] + " came");
  return lines;
}

function showTip(event) {
  const found = itemAt(event.offsetX, event.offsetY);
  const tip = by("tip");
  tip.hidden = !found;
  if (!found) return;
  tip.replaceChildren(...describe(found).map((line) => {
    const paragraph = document.createElement("div");
    paragraph.textContent = line;
    return paragraph;
  }));
  const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
  tip.style.left = Math.max(0, left) + "px";
  const below = event.clientY + 18;
  tip.style.top = (below + tip.offsetHeight < window.innerHeight ? below : event.clientY - tip.offsetHeight - 10) + "px";
}

function listen() {
  let held = null;
  const letGo = () => (held = null);
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || held) return;
    held = { pointer: event.pointerId, x: event.offsetX, from: view.from, to: view.to };
    canvas.setPointerCapture(event.pointerId);
    showTip(event);
  });
  for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) canvas.addEventListener(end, letGo);
  canvas.addEventListener("pointermove", (event) => {
    if (!held) return showTip(event);
    if (event.pointerId !== held.pointer) return;
    const pixels = held.x - event.offsetX;
    if (Math.abs(pixels) > 3) by("tip").hidden = true;
    show(held.from + pixels / scale(), held.to + pixels / scale());
  });
  scroller.addEventListener("scroll", drawSoon);
  canvas.addEventListener("pointerleave", () => (by("tip").hidden = true));
  canvas.addEventListener("dblclick", () => show(0, end));
  canvas.addEventListener("wheel", (event) => {
    const scrolls = fullHeight > shownHeight() && !event.ctrlKey && !event.shiftKey && Math.abs(event.deltaY) >= Math.abs(event.deltaX);
    if (scrolls) return;
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return move((event.deltaX || event.deltaY) / 1000);
    zoom(Math.exp(event.deltaY / 400), timeAt(event.offsetX));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const act = { "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), Home: () => show(0, end) }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  by("fit").addEventListener("click", () => show(0, end));
  by("closer").addEventListener("click", () => zoom(0.6));
  by("farther").addEventListener("click", () => zoom(1 / 0.6));
  window.addEventListener("resize", () => {
    drawSoon();
    drawSteps();
  });
}

// Tables ---------------------------------------------------------------------------------------------

function addRow(body, cells, isRoot = false) {
  const row = document.createElement("tr");
  for (const text of cells) {
    const cell = document.createElement("td");
    cell.textContent = text;
    if (isRoot) cell.className = "root";
    row.append(cell);
  }
  by(body).append(row);
}

function addText(place, title, text) {
  const head = document.createElement("p");
  head.textContent = title;
  const body = document.createElement("pre");
  body.textContent = text;
  by(place).append(head, body);
}

const lengths = (lane) => lane.start.map((start, i) => lane.end[i] - start);
const sum = (values) => values.reduce((a, b) => a + b, 0);

function fillSteps() {
  for (const rank of ranks) {
    const lane = rank.lanes.get("steps");
    if (!lane) continue;
    by("steps").hidden = false;
    const all = lengths(lane);
    const sorted = Float64Array.from(all).sort();
    const at = (share) => timeText(sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]);
    const longest = sorted[sorted.length - 1];
    addRow("step-rows", [rank.rank, all.length, at(0.5), at(0.95), timeText(longest), lane.number[all.indexOf(longest)]]);
  }
}

const stepLanes = ranks.map((rank) => rank.lanes.get("steps")).filter(Boolean);
function longestShown() {
  const sorted = Float64Array.from(stepLanes.flatMap(lengths)).sort();
  return Math.max(1, Math.min(sorted[sorted.length - 1], 3 * sorted[Math.floor(0.99 * (sorted.length - 1))]));
}
const mostOfStep = stepLanes.length === 0 ? 1 : longestShown();

// A line a rank: the longest step of each pixel.
function drawSteps() {
  const lanes = stepLanes;
  const most = mostOfStep;
  if (lanes.length === 0) return;
  const height = 160;
  const chart = by("chart");
  const target = chart.getContext("2d");
  const width = fitCanvas(chart, target, height);
  const low = Math.min(...lanes.map((lane) => lane.start[0]));
  const perTick = (width - margin) / Math.max(1, end - low);
  lanes.forEach((lane, which) => {
    const columns = new Float64Array(Math.max(1, Math.ceil(width - margin) + 1));
    const begins = new Set([0]);  // after a restart
    lengths(lane).forEach((length, i) => {
      const column = Math.floor((lane.start[i] - low) * perTick);
      columns[column] = Math.max(columns[column], length);
      if (i > 0 && lane.start[i] > lane.end[i - 1]) begins.add(column);
    });
    target.strokeStyle = `hsl(${(which * 67 + 215) % 360} 60% 50%)`;
    target.beginPath();
    columns.forEach((length, column) => {
      if (length === 0) return;
      const y = height - 4 - Math.min(1, length / most) * (height - 20);
      if (begins.has(column)) target.moveTo(margin + column, y - 1);
      target.lineTo(margin + column, y);
    });
    target.stroke();
  });
  target.fillStyle = colour("--faint");
  target.fillText(timeText(most), 6, 14);
  target.fillText("0", 6, height - 4);
}

function fillWaits() {
  const caused = new Map();
  const rankRows = ranks.map((rank) => {
    let count = 0;
    let inside = 0;
    let waited = 0;
    let met = 0;
    let last = 0;
    for (const lane of rank.lanes.values()) {
      if (lane.kind !== "group") continue;
      if (data.groups[lane.group].gpu) continue;
      count += lane.start.length;
      inside += sum(lengths(lane));
      waited += sum(lane.waited);
      lane.last.forEach((who, i) => {
        met += who >= 0;
        if (who === rank.rank) ++last;
        else if (who >= 0) caused.set(who, (caused.get(who) ?? 0) + lane.waited[i]);
      });
    }
    const waits = rank.lanes.get("waits");
    const gradients = waits ? sum(lengths(waits).filter((_, i) => waits.what[i] === Kind.gradients)) : 0;
    return { rank: rank.rank, count, inside, waited, met, last, gradients, time: sum(rank.parts.map((part) => part.ended - part.started)) };
  });
  for (const row of rankRows) {
    if (row.count === 0 && row.gradients === 0) continue;
    by("waits").hidden = by("waits-table").hidden = false;
    const share = (ticks) => timeText(ticks) + " (" + percentText(ticks / Math.max(1, row.time)) + ")";
    addRow("wait-rows", [row.rank, row.count, share(row.inside), share(row.waited), share(row.gradients), percentText(row.last / Math.max(1, row.met)), timeText(caused.get(row.rank) ?? 0)]);
  }
  by("slow").textContent = data.report?.slow?.text ?? "";
  if (data.report?.slow) by("waits").hidden = false;
}

function fillRanks() {
  const workers = new Map((data.report?.workers ?? []).map((worker) => [worker.rank, worker]));
  const lastAttempt = data.attempts.length - 1;
  let lost = 0;
  for (const rank of ranks) {
    for (const part of rank.parts) {
      const worker = part.attempt === data.attempts[lastAttempt].attempt ? workers.get(rank.rank) : undefined;
      const stranger = part.joined ? "" : "(not a program of this library: its calls are not known)";
      addRow("rank-rows", [rank.rank + on(part), part.attempt + 1, part.pid, timeText(part.ended - part.started), part.end, worker?.last_call || stranger], worker?.part === "root_cause");
      lost += part.lost;
      if (!worker?.last_stderr) continue;
      by("outputs").hidden = false;
      addText("output", "rank " + rank.rank, worker.last_stderr);
    }
  }
  if (lost === 0) return;
  by("lost").hidden = false;
  by("lost").textContent = "The first " + lost + " activities are not kept: there were too many.";
}

function fillHead() {
  const report = data.report;
  const outcome = report?.outcome?.replace("_", " ") ?? "ended";
  by("outcome").textContent = "The job " + (outcome === "not started" ? "could not start" : outcome === "stopped" ? "was stopped" : outcome);
  by("outcome").className = outcome === "succeeded" ? "good" : outcome === "failed" || outcome === "not started" ? "bad" : "";
  const facts = [ranks.length + (ranks.length === 1 ? " rank" : " ranks"), timeText(end)];
  if (report) facts.push("exit code " + report.exit_code, "host " + report.host, "ended " + new Date(report.ended * 1000).toLocaleString());
  if (data.attempts.length > 1) facts.push(data.attempts.length + " attempts");
  if (data.run_id && data.run_id !== "none") facts.push("run " + data.run_id);
  by("facts").textContent = facts.join(" \u00b7 ");
  by("command").textContent = data.command.join(" ");
  document.title = by("outcome").textContent + " (ddp-launch)";
  for (const attempt of data.attempts) {
    const firstLine = attempt.text.split("\n")[0];
    if (firstLine === "" || report?.message.startsWith(firstLine)) continue;
    by("attempts").hidden = false;
    addText("attempt-texts", "attempt " + (attempt.attempt + 1), attempt.text);
  }
  if (!report?.message) return;
  by("failure").hidden = false;
  by("message").textContent = report.message;
}

fillHead();
fillLegend();
fillSteps();
fillWaits();
fillRanks();
listen();
draw();
drawSteps();
document.body.dataset.opened = Math.round(performance.now());  // milliseconds, for who tests this
