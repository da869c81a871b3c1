// Comforts of the pages, which work without them: countdowns, news, keys in a trace, and the check of one record.
"use strict";

function countdowns() {
  for (const one of document.querySelectorAll("time[data-at]")) {
    const left = Number(one.dataset.at) - Date.now();
    one.dataset.text ??= one.textContent;
    if (left <= 0 || left > 14 * 864e5) { one.textContent = one.dataset.text; continue; }
    const minutes = Math.floor(left / 6e4);
    const said = minutes >= 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${minutes} min ${Math.floor(left / 1e3) % 60} s`;
    one.textContent = `in ${said} (${one.dataset.text})`;
  }
}

async function renew() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
  const main = document.querySelector("main");
  if (fresh && fresh.innerHTML !== main.innerHTML) { main.innerHTML = fresh.innerHTML; countdowns(); }
}

function watch() {
  if (!/^\/(races(\/[^/]+)?|validators|firehose)?$/.test(location.pathname)) return;
  const news = new EventSource("/news");
  let isFirst = true;
  news.addEventListener("picture", () => { if (!isFirst) renew(); isFirst = false; });
  addEventListener("pagehide", () => news.close());
}

function keys() {
  const steps = [...document.querySelectorAll("dt[id^=span-]")];
  if (!steps.length) return;
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
    const way = { j: 1, k: -1 }[event.key];
    if (!way) return;
    const now = steps.findIndex((one) => `#${one.id}` === location.hash);
    const next = steps[Math.min(steps.length - 1, Math.max(0, now + way))];
    location.hash = next.id;
  });
}

async function sha256(bytes) {
  const digest = await crypto.subtle.digest("SHA-256", bytes);
  return [...new Uint8Array(digest)].map((one) => one.toString(16).padStart(2, "0")).join("");
}

// The canonical bytes stand in the answer as they were hashed: cut them out, for parsing and printing would change them.
function raw(text, key) {
  const start = text.indexOf(`"${key}":{`);
  if (start < 0) return null;
  const from = start + key.length + 3;
  let depth = 0, isText = false;
  for (let at = from; at < text.length; at++) {
    const one = text[at];
    if (isText) { if (one === "\\") at++; else if (one === '"') isText = false; continue; }
    if (one === '"') isText = true;
    else if (one === "{") depth++;
    else if (one === "}" && --depth === 0) return text.slice(from, at + 1);
  }
  return null;
}

function check() {
  const form = document.getElementById("verify");
  if (!form) return;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const list = document.getElementById("checks");
    list.replaceChildren();
    const say = (isGood, text) => {
      const line = document.createElement("li");
      line.className = isGood ? "yes" : "no";
      line.textContent = text;
      list.append(line);
    };
    const validator = form.elements.validator.value, record = form.elements.record.value.trim();
    try {
      const answer = await fetch(`/v1/trajectories/${encodeURIComponent(validator)}/${encodeURIComponent(record)}`);
      const text = await answer.text();
      if (!answer.ok) { say(false, JSON.parse(text).message); return; }
      const row = JSON.parse(text).evaluation, encode = (part) => new TextEncoder().encode(part);
      const content = raw(text, "content"), body = raw(text, "body");
      say(content !== null && (await sha256(encode(content))) === row.content_sha256, `the record's bytes have the hash that is signed: ${row.content_sha256}`);
      if (body !== null) say((await sha256(encode(body))) === row.content.payload.body_sha256, `the trace has the hash that the record names: ${row.content.payload.body_sha256}`);
      else say(false, "the trace is not here");
      say(/^[0-9a-f]{128}$/.test(row.signature), `signed by ${row.validator}: ${row.signature.slice(0, 24)}… (checked by the program below)`);
    } catch (error) {
      say(false, `the server's answer could not be read: ${error.message}`);
    }
  });
}

countdowns();
setInterval(countdowns, 1000);
watch();
keys();
check();
