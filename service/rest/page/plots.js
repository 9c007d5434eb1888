// Plots as SVG, made of elements only: nothing that comes from the service is ever parsed as markup.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 176, LEFT = 58, BOTTOM = 18, TOP = 8, LEAST_WIDTH = 200;

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "colour") made.style.setProperty("--colour", value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// The least "round" number that is not below `value`: 1, 2 or 5 times a power of ten.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((round) => round >= value) ?? 10 * power;
}

function clockText(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
}

// Draw `series` ([{name, colour, values}]) over `times` (seconds). Stacked areas, or lines.
export function draw(host, times, series, { stacked = false, format, title, full = 0 }) {
  const shown = series.filter((one) => one.values.some((value) => value > 0));
  const totals = times.map((_, at) => shown.reduce((sum, one) => sum + one.values[at], 0));
  const highest = stacked ? Math.max(0, ...totals) : Math.max(0, ...shown.flatMap((one) => one.values));
  if (!(highest > 0)) return host.replaceChildren(element("p", { class: "quiet empty" }, "Nothing yet."));
  const top = full || roundUp(highest);
  const first = times[0], last = times[times.length - 1];
  const width = Math.max(LEAST_WIDTH, host.clientWidth);
  const x = (time) => LEFT + ((width - LEFT) * (time - first)) / Math.max(1e-9, last - first);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img" });
  svg.append(shape("title", {}, title));
  for (const share of [0, 0.5, 1]) {
    svg.append(shape("line", { class: "grid", x1: LEFT, x2: width, y1: y(top * share), y2: y(top * share) }));
    svg.append(shape("text", { x: LEFT - 5, y: y(top * share) + 4, "text-anchor": "end" }, format(top * share)));
  }
  for (const [time, anchor] of last - first < 1 ? [[last, "end"]] : [[first, "start"], [last, "end"]])
    svg.append(shape("text", { x: x(time), y: HEIGHT - 3, "text-anchor": anchor }, clockText(time)));
  let floor = times.map(() => 0);
  for (const one of shown) {
    const ceiling = one.values.map((value, at) => (stacked ? floor[at] + value : value));
    const line = times.map((time, at) => `${x(time).toFixed(1)},${y(ceiling[at]).toFixed(1)}`);
    if (stacked) {
      const back = times.map((time, at) => `${x(time).toFixed(1)},${y(floor[at]).toFixed(1)}`).reverse();
      svg.append(shape("polygon", { points: [...line, ...back].join(" "), fill: one.colour, "fill-opacity": 0.85 }));
      floor = ceiling;
    } else {
      svg.append(shape("polyline", {
        points: line.join(" "), fill: "none", stroke: one.colour, "stroke-width": 2,
      }));
    }
  }
  const legend = element("div", { class: "legend" });
  for (const one of series.filter((each) => shown.includes(each) || series.length <= 6)) {
    const now = one.values[one.values.length - 1] ?? 0;
    legend.append(element("span", { colour: one.colour }, `${one.name} ${format(now)}`));
  }
  host.replaceChildren(svg, legend);
}

// Bars of shares: [{label, share, text, colour}].
export function bars(host, rows, empty) {
  if (!rows.length) return host.replaceChildren(element("p", { class: "quiet" }, empty));
  host.replaceChildren(...rows.map((row) => {
    const fill = element("div", { class: "fill" });
    fill.style.width = `${Math.min(100, 100 * row.share)}%`;
    return element("div", { class: "bar", colour: row.colour },
      element("div", {}, element("span", { class: "swatch" }), row.label),
      element("div", { class: "track" }, fill),
      element("div", { class: "value" }, row.text));
  }));
}
