// Asks /v1/overview every few seconds, keeps an hour of samples, and shows them.

import { bars, draw, element } from "./plots.js";

const POLL_SECONDS = 3, TIMEOUT_SECONDS = 5, KEPT_SAMPLES = 360;
const SOURCES = ["hbm", "dram", "ssd", "replay", "prefill"];
const MODES = {
  full_attention: "--ssd", resident: "--hbm", snapshot: "--dram", bounded_replay: "--replay", exact_rebuild: "--other-1", cold: "--prefill",
};
const REASONS = {
  new_text: "--prefill", unused: "--hbm", never_stored: "--ssd", expired: "--replay", evicted: "--other-1", corrupt: "--bad",
  tier_down: "--other-3", refused: "--other-2", superseded: "--dram",
};
const MISSED = [
  ["none", "new_text", "new text"], ["none", "unused", "there, not used"],
  ...["never_stored", "expired", "evicted", "refused", "tier_down", "corrupt"].map((reason) => ["block", reason, `block: ${words(reason)}`]),
  ...["never_stored", "superseded", "expired", "evicted", "refused", "tier_down", "corrupt"].map((reason) => ["snapshot", reason, `snapshot: ${words(reason)}`]),
];
const LEVELS = ["none", "good", "look", "bad"];
const TIERS = { ssd: "SSD", dram: "DRAM pool" };
const VERBS = ["plan", "fetch", "store", "release"];

function words(name) {
  return name.replaceAll("_", " ");
}

const page = Object.fromEntries([...document.querySelectorAll("[id]")].map((one) => [one.id, one]));
let samples = [], plotted = [], lastNumber = 0;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function scaled(value, steps) {
  const [size, unit] = steps.find(([step]) => value >= 0.9995 * step) ?? steps[steps.length - 1];
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
  return all.slice(1).map((one, at) => Math.max(0, one.of(name) - all[at].of(name)) / Math.max(0.1, one.at - all[at].at));
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

function told(name, found) {
  return element(name, { class: `note ${found.level}` }, element("strong", {}, found.title), `. ${found.evidence} ${found.advice}`);
}

// Health and what was found wrong, in one line that is as bad as the worst of it.
function showState(answer, now) {
  const worst = answer.findings.reduce((level, one) => Math.max(level, LEVELS.indexOf(one.level)), LEVELS.indexOf("good"));
  const titles = answer.findings.filter((one) => LEVELS.indexOf(one.level) === worst && worst > 1 && one.topic !== "health").map((one) => one.title);
  const found = [...answer.health.causes, ...titles];
  page.health.textContent = found.length ? `${answer.health.status}, but:` : answer.health.status;
  if (answer.health.causes.length) page.health.textContent = `${answer.health.status}:`;
  page.health.className = LEVELS[worst];
  page.causes.replaceChildren(...found.map((one) => element("li", {}, one)));
  page.clock.textContent = `as of ${new Date(now.at * 1000).toLocaleTimeString()}`;
  page.version.textContent = `kvshelf ${answer.version}`;
  for (const one of document.querySelectorAll(".window")) one.textContent = answer.window;
  page.answers.replaceChildren(...answer.answers.map((one) => element("article", { class: `card ${one.level}` },
    element("h2", {}, one.question), element("p", {}, one.answer), ...one.notes.map((note) => told("p", note)))));
  const others = answer.findings.filter((one) => one.topic === "service");
  page.others.replaceChildren(...others.map((one) => told("li", one)));
  page.others.hidden = !others.length;
}

function showPlots(all) {
  const times = all.slice(1).map((one) => one.at);
  if (!times.length) return;
  draw(page.tokens, times, SOURCES.map((name) => ({ name, colour: colour(`--${name}`), values: rates(all, `tokens.${name}`) })),
    { stacked: true, format: count, title: "prompt tokens a second by source" });
  draw(page.resumes, times, Object.entries(MODES).map(([name, tone]) => ({ name: name === "snapshot" ? "snapshot from DRAM" : words(name), colour: colour(tone), values: rates(all, `resumes.${name}`) })),
    { stacked: true, format: count, title: "requests a second by how they resumed" });
  draw(page.used, all.map((one) => one.at), Object.keys(TIERS).map((tier) => ({ name: TIERS[tier], colour: colour(`--${tier}`), values: all.map((one) => share(one, tier)) })),
    { format: (value) => percent(value), title: "part of each budget that is filled", full: 1 });
}

function share(one, tier) {
  const budget = one.of(`budget.${tier}`);
  return budget && one.of(`up.${tier}`) === 1 ? one.of(`filled.${tier}`) / budget : 0;
}

function showMisses(grown) {
  const total = SOURCES.reduce((sum, source) => sum + grown.of(`tokens.${source}`), 0);
  const rows = MISSED.map(([kind, reason, label]) => ({ label, tokens: grown.of(`missed.${kind}.${reason}`), colour: colour(REASONS[reason]) }))
    .filter((row) => row.tokens > 0).sort((a, b) => b.tokens - a.tokens)
    .map((row) => ({ ...row, share: row.tokens / total, text: `${count(row.tokens)} of ${count(total)} prompt tokens (${percent(row.tokens / total)})` }));
  bars(page.misses, rows, "No request has finished.");
}

// What became of records that engines stored, and why some were not kept.
function showStores(grown) {
  const rows = [];
  for (const kind of ["block", "snapshot"]) {
    const of = (outcome) => grown.of(`stores.${kind}.${outcome}`), outcomes = ["stored", "replaced", "duplicate", "refused", "lost"];
    const total = outcomes.reduce((sum, outcome) => sum + of(outcome), 0);
    const add = (label, number, tone) => number > 0 && rows.push({ label: `${kind}: ${label}`, share: number / total, colour: colour(tone),
      text: `${count(number)} of ${count(total)} (${percent(number / total)})` });
    add("stored", of("stored") + of("replaced"), kind === "block" ? "--ssd" : "--dram");
    add("there already", of("duplicate"), "--prefill");
    for (const name of grown.names.filter((one) => one.startsWith(`unkept.${kind}.`))) {
      const reason = name.slice(`unkept.${kind}.`.length);
      add(reason === "tier_down" ? "lost: tier down" : `refused: ${words(reason)}`, grown.of(name), "--bad");
    }
  }
  bars(page.stores, rows, "Nothing was stored.");
}

function showSpace(answer, now) {
  const rows = answer.shelves.map((shelf) => {
    const filled = shelf.filled_bytes, budget = shelf.budget_bytes, tier = shelf.tier, label = TIERS[tier] + (shelf.tenant ? ` of ${shelf.tenant}` : "");
    if (now.of(`up.${tier}`) !== 1) return { label, share: 0, colour: colour(`--${tier}`), text: "not known while it is down" };
    const taken = tier === "ssd" && shelf.used_bytes > filled ? `; ${bytes(shelf.used_bytes)} are taken on the disk` : "";
    const holds = `${count(shelf.records)} records`;
    return { label, share: budget ? filled / budget : 0, colour: colour(`--${tier}`),
      text: (budget ? `${bytes(filled)} of ${bytes(budget)} (${percent(filled / budget)})` : `${bytes(filled)}, no budget known`) + `, ${holds}${taken}` };
  });
  bars(page.space, rows, "");
}

function showLife(grown, now) {
  const rows = [];
  for (const [tier, label] of Object.entries(TIERS)) {
    // A quantile is a bucket's edge, and nothing is used again after its TTL.
    const life = now.of(`ttl.${tier}`), edge = quantile(grown, `age.${tier}.`, 0.95), age = edge === null ? null : Math.min(edge, life);
    const cut = now.of("retention") < life;
    if (tier === "ssd") rows.push({ label: "SSD: kept", share: cut ? now.of("retention") / life : 1, colour: colour(cut ? "--bad" : "--ssd"),
      text: cut ? `${span(now.of("retention"))} of ${span(life)}: the oldest had to go` : `nothing had to go before its TTL of ${span(life)}` });
    rows.push({ label: `${label}: age at hit`, share: age === null ? 0 : age / life, colour: colour(`--${tier}`),
      text: age === null ? `no hit yet; the TTL is ${span(life)}` : `95 % are used again within ${span(age)} of a TTL of ${span(life)}` });
  }
  bars(page.life, rows, "");
}

function cells(values) {
  return element("tr", {}, ...values.map((value) => element("td", {}, value)));
}

// What a tier gave: read from its medium, served from memory, and read by engines themselves over the local path.
function reads(now, tier) {
  return [bytes(now.of(`bytes.${tier}.read`)), bytes(now.of(`bytes.${tier}.memory`)), tier === "ssd" ? bytes(now.of("local_bytes")) : "–"];
}

function showTables(grown, now, minutes) {
  page.latency.tBodies[0].replaceChildren(...VERBS.map((verb) => {
    const calls = grown.of(`calls.${verb}`), at = (share) => quantile(grown, `took.${verb}.`, share);
    return cells([verb, count(calls / minutes), ...[0.5, 0.95, 0.99].map((share) => (calls > 0 ? seconds(at(share)) : "–"))]);
  }));
  const local = grown.of("local_records");
  if (local > 0) page.latency.tBodies[0].append(cells(["local reads", `${count(local / minutes)} blocks`, "–", "–", "–"]));
  const breaker = ["closed", "open", "half_open"].find((state) => now.of(`breaker.${state}`) === 1) ?? "closed";
  page.tiers.tBodies[0].replaceChildren(...Object.entries(TIERS).map(([tier, label]) => cells([label,
    (now.of(`up.${tier}`) === 1 ? "serves" : "down") + (tier === "dram" ? `, breaker ${words(breaker)}` : ""),
    count(now.of(`records.${tier}`)), ...reads(now, tier), bytes(now.of(`bytes.${tier}.write`)), count(now.of(`faults.${tier}`))])));
}

function show(answer) {
  const now = take(answer), all = [...samples, now];
  // A rate over a moment says little, so the plots end with the last sample until some of the next interval is over.
  const isEarly = samples.length > 1 && now.at - samples[samples.length - 1].at < answer.interval_seconds / 2;
  const before = all.find((one) => now.at - one.at <= answer.window_seconds + 0.5);
  const grown = { names: now.names, of: (name) => now.of(name) - before.of(name) };
  page.access.hidden = true;
  page.all.hidden = false;
  page.all.className = "";
  showState(answer, now);
  plotted = isEarly ? samples : all;
  showPlots(plotted);
  showMisses(grown);
  showStores(grown);
  showSpace(answer, now);
  showLife(grown, now);
  showTables(grown, now, Math.max(1, now.at - before.at) / 60);
}

// What is shown meanwhile is old: it must not look as if all were well.
function trouble(text, level) {
  page.health.textContent = text;
  page.health.className = level;
  page.causes.replaceChildren();
  page.all.className = "stale";
}

async function poll() {
  const token = sessionStorage.getItem("token");
  try {
    const answer = await fetch(`v1/overview?after=${lastNumber}`, { headers: token ? { authorization: `Bearer ${token}` } : {}, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_SECONDS * 1000) });
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

new ResizeObserver(() => showPlots(plotted)).observe(page.tokens);
page.access.addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", page.token.value.trim());
  page.token.value = "";
  poll();
});
poll();
