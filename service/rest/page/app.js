// Asks /v1/overview every few seconds, keeps an hour of samples, and shows them.

import { bars, draw, element } from "./plots.js";

const POLL_SECONDS = 3, KEPT_SAMPLES = 360, WINDOW_SECONDS = 600;
const SOURCES = ["hbm", "dram", "ssd", "replay", "prefill"];
const MODES = {
  full_attention: "--ssd", resident: "--hbm", snapshot: "--dram", bounded_replay: "--replay", exact_rebuild: "--other-1", cold: "--prefill",
};
const REASONS = {
  never_stored: "--prefill", expired: "--replay", evicted: "--other-1", corrupt: "--bad", tier_down: "--other-3",
};
const TIERS = { ssd: "SSD", dram: "DRAM pool" };
const VERBS = ["plan", "fetch", "store", "release"];

const page = Object.fromEntries([...document.querySelectorAll("[id]")].map((one) => [one.id, one]));
let samples = [], lastNumber = 0;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const words = (name) => name.replaceAll("_", " ");

function scaled(value, steps) {
  const [size, unit] = steps.find(([step]) => value >= step) ?? steps[steps.length - 1];
  const number = value / size;
  return `${number >= 100 || Number.isInteger(number) ? Math.round(number) : number.toPrecision(3)}${unit}`;
}
const count = (value) => scaled(value, [[1e9, " G"], [1e6, " M"], [1e3, " k"], [1, ""]]);
const bytes = (value) => scaled(value, [[2 ** 40, " TiB"], [2 ** 30, " GiB"], [2 ** 20, " MiB"], [2 ** 10, " KiB"], [1, " B"]]);
const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
const seconds = (value) => (value < 0.001 ? `${(value * 1e6).toFixed(0)} µs` : value < 1 ? `${(value * 1e3).toPrecision(3)} ms` : `${value.toPrecision(3)} s`);
const span = (value) => (value >= 172800 ? `${(value / 86400).toFixed(1)} days` : value >= 7200 ? `${(value / 3600).toFixed(1)} h`
  : value >= 120 ? `${(value / 60).toFixed(0)} min` : `${value.toFixed(0)} s`);

// A sample as {at, of(name)}; what it does not have is 0.
function read(row, names) {
  const values = new Map(names.map((name, at) => [name, row.values[at]]));
  return { number: row.number, at: row.at, of: (name) => values.get(name) ?? 0, names };
}

function take(answer) {
  const fresh = answer.samples.map((row) => read(row, answer.names));
  if (fresh.length) lastNumber = fresh[fresh.length - 1].number;
  samples = [...samples, ...fresh].slice(-KEPT_SAMPLES);
  return read(answer.now, answer.names);
}

// Figures a second between each two samples.
function rates(all, name) {
  return all.slice(1).map((one, at) => Math.max(0, one.of(name) - all[at].of(name)) / Math.max(1, one.at - all[at].at));
}

// A quantile from the growth of cumulative buckets; null when nothing was counted.
function quantile(grown, head, share) {
  const bounds = grown.names.filter((name) => name.startsWith(head)).map((name) => name.slice(head.length))
    .map((bound) => [bound === "+Inf" ? Infinity : Number(bound), grown.of(head + bound)]).sort((a, b) => a[0] - b[0]);
  const total = bounds.length ? bounds[bounds.length - 1][1] : 0;
  if (!(total > 0)) return null;
  let below = 0, low = 0;
  for (const [bound, counted] of bounds) {
    if (counted >= share * total) {
      if (bound === Infinity) return low;
      return low + (bound - low) * ((share * total - below) / Math.max(1e-9, counted - below));
    }
    [below, low] = [counted, bound];
  }
  return low;
}

function showState(answer, now) {
  page.health.textContent = [answer.health.status, ...answer.health.causes].join(": ");
  page.health.className = answer.health.status === "ok" ? "good" : "bad";
  page.clock.textContent = `as of ${new Date(now.at * 1000).toLocaleTimeString()}`;
  page.version.textContent = `kvshelf ${answer.version}`;
  for (const one of document.querySelectorAll(".window")) one.textContent = span(Math.max(1, answer.window_seconds));
  page.answers.replaceChildren(...answer.answers.map((one) =>
    element("article", { class: `card ${one.level}` }, element("h2", {}, one.question), element("p", {}, one.answer))));
}

function showPlots(all) {
  const times = all.slice(1).map((one) => one.at);
  if (!times.length) return;
  draw(page.tokens, times, SOURCES.map((name) => ({ name, colour: colour(`--${name}`), values: rates(all, `tokens.${name}`) })),
    { stacked: true, format: count, title: "prompt tokens a second by source" });
  draw(page.resumes, times, Object.entries(MODES).map(([name, tone]) => ({ name: words(name), colour: colour(tone), values: rates(all, `resumes.${name}`) })),
    { stacked: true, format: count, title: "requests a second by how they resumed" });
  draw(page.used, all.map((one) => one.at), Object.keys(TIERS).map((tier) => ({ name: `${TIERS[tier]} used`, colour: colour(`--${tier}`), values: all.map((one) => one.of(`used.${tier}`)) })),
    { format: bytes, base: 1024, title: "bytes in use by tier" });
}

function showMisses(grown) {
  const rows = [];
  for (const kind of ["block", "snapshot"]) {
    const total = Object.keys(REASONS).reduce((sum, reason) => sum + grown.of(`misses.${kind}.${reason}`), grown.of(`hits.${kind}`));
    for (const [reason, tone] of Object.entries(REASONS)) {
      const missed = grown.of(`misses.${kind}.${reason}`);
      if (missed > 0) rows.push({ label: `${kind}: ${words(reason)}`, share: missed / total, colour: colour(tone),
        text: `${count(missed)} of ${count(total)} looked up (${percent(missed / total)})` });
    }
  }
  bars(page.misses, rows, "Nothing was looked up and missed.");
}

function showSpace(now) {
  bars(page.space, Object.entries(TIERS).map(([tier, label]) => {
    const used = now.of(`used.${tier}`), budget = now.of(`budget.${tier}`);
    return { label, share: budget ? used / budget : 0, colour: colour(`--${tier}`),
      text: budget ? `${bytes(used)} of ${bytes(budget)} (${percent(used / budget)})` : `${bytes(used)}, budget not known` };
  }), "");
}

function showLife(grown, now) {
  const rows = [];
  for (const [tier, label] of Object.entries(TIERS)) {
    const life = now.of(`ttl.${tier}`), age = quantile(grown, `age.${tier}.`, 0.95);
    if (tier === "ssd") rows.push({ label: "SSD: retention reached", share: now.of("retention") / life, colour: colour("--ssd"),
      text: `${span(now.of("retention"))} of ${span(life)}` });
    rows.push({ label: `${label}: age at hit`, share: age === null ? 0 : age / life, colour: colour(`--${tier}`),
      text: age === null ? `no hit yet; the TTL is ${span(life)}` : `95 % are used again within ${span(age)} of a TTL of ${span(life)}` });
  }
  bars(page.life, rows, "");
}

function cells(values) {
  return element("tr", {}, ...values.map((value) => element("td", {}, value)));
}

function showTables(grown, now, minutes) {
  page.latency.tBodies[0].replaceChildren(...VERBS.map((verb) => {
    const calls = grown.of(`calls.${verb}`), at = (share) => quantile(grown, `took.${verb}.`, share);
    return cells([verb, count(calls / minutes), ...[0.5, 0.95, 0.99].map((share) => (calls > 0 ? seconds(at(share)) : "–"))]);
  }));
  const breaker = ["closed", "open", "half_open"].find((state) => now.of(`breaker.${state}`) === 1) ?? "closed";
  page.tiers.tBodies[0].replaceChildren(...Object.entries(TIERS).map(([tier, label]) => cells([label,
    (now.of(`up.${tier}`) === 1 ? "serves" : "down") + (tier === "dram" ? `, breaker ${words(breaker)}` : ""),
    count(now.of(`records.${tier}`)), bytes(now.of(`bytes.${tier}.read`)), bytes(now.of(`bytes.${tier}.write`)), count(now.of(`faults.${tier}`))])));
}

function show(answer) {
  const now = take(answer), all = [...samples, now];
  const before = all.find((one) => now.at - one.at <= WINDOW_SECONDS);
  const grown = { names: now.names, of: (name) => now.of(name) - before.of(name) };
  page.access.hidden = true;
  page.all.hidden = false;
  showState(answer, now);
  showPlots(all);
  showMisses(grown);
  showSpace(now);
  showLife(grown, now);
  showTables(grown, now, Math.max(1, now.at - before.at) / 60);
}

function trouble(text, level) {
  page.health.textContent = text;
  page.health.className = level;
}

async function poll() {
  const token = sessionStorage.getItem("token");
  try {
    const answer = await fetch(`v1/overview?after=${lastNumber}`, { headers: token ? { authorization: `Bearer ${token}` } : {}, cache: "no-store" });
    page.untold.hidden = Boolean(token) || answer.status === 401; // A link sends no token, and would be refused.
    if (answer.ok) show(await answer.json());
    else {
      const problem = await answer.json().catch(() => ({}));
      if (answer.status === 401 || answer.status === 403) {
        page.all.hidden = true;
        page.access.hidden = false;
        trouble(token ? problem.detail ?? "this token is not taken" : "the service asks for a token", token ? "bad" : "look");
        if (token) sessionStorage.removeItem("token");
        return;
      }
      trouble(`the service answers ${answer.status}: ${problem.detail ?? ""}`, "bad");
    }
  } catch {
    trouble("the service does not answer; what is shown is the last that was seen", "bad");
  }
  setTimeout(poll, POLL_SECONDS * 1000);
}

page.access.addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", page.token.value.trim());
  page.token.value = "";
  poll();
});
poll();
