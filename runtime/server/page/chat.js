// The chat page: it keeps the conversation, sends it whole each time, and shows the answer while it streams in.
import { events } from "./stream.js";

const $ = (id) => document.getElementById(id);
const conversation = []; // messages as the API has them
let running = null; // AbortController of the answer that is being made

// show adds a message to the log and returns the elements that its text goes into.
function show(role, text = "") {
  const article = document.createElement("article");
  article.className = role;
  const title = document.createElement("h2");
  title.textContent = role === "user" ? "You" : "Model";
  const thoughts = document.createElement("details");
  const summary = document.createElement("summary");
  summary.textContent = "Reasoning";
  const thought = document.createElement("p");
  thoughts.append(summary, thought);
  thoughts.hidden = true;
  const body = document.createElement("p");
  body.className = "text";
  body.textContent = text;
  article.append(title, thoughts, body);
  $("log").append(article);
  scroll(true);
  return { article, thoughts, thought, body };
}

// scroll keeps the end of the log in sight, unless the reader has scrolled up.
function scroll(always = false) {
  const log = $("log");
  if (always || log.scrollHeight - log.scrollTop - log.clientHeight < 80) {
    log.scrollTop = log.scrollHeight;
  }
}

function headers() {
  const h = { "Content-Type": "application/json" };
  if ($("key").value) h.Authorization = "Bearer " + $("key").value;
  return h;
}

function request() {
  const messages = [...conversation];
  if ($("system").value.trim()) messages.unshift({ role: "system", content: $("system").value });
  const r = { messages, stream: true, stream_options: { include_usage: true } };
  if ($("temperature").value !== "") r.temperature = Number($("temperature").value);
  if ($("limit").value !== "") r.max_tokens = Number($("limit").value);
  return r;
}

// failure is the message of an answer that is an error.
async function failure(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered ${response.status}`;
  }
}

// answer asks for an answer to the conversation and shows it.
async function answer() {
  const shown = show("assistant");
  const message = { role: "assistant", content: "" };
  running = new AbortController();
  busy(true);
  let first = 0, pieces = 0, usage = null, note = "";
  const speed = () => {
    const count = usage ? usage.completion_tokens : pieces;
    const seconds = (performance.now() - first) / 1000;
    return first && count > 1 && seconds > 0 ? `${count} tokens, ${((count - 1) / seconds).toFixed(1)} tok/s` : "";
  };
  $("status").textContent = "waiting for the model…";
  try {
    const response = await fetch("v1/chat/completions", {
      method: "POST", headers: headers(), body: JSON.stringify(request()), signal: running.signal,
    });
    if (!response.ok) throw new Error(await failure(response));
    for await (const event of events(response.body)) {
      if (event.error) throw new Error(event.error.message);
      if (event.usage) usage = event.usage;
      const choice = event.choices[0];
      if (!choice) continue;
      const { content, reasoning_content: reasoning } = choice.delta;
      if (reasoning) {
        shown.thoughts.hidden = false;
        shown.thought.append(reasoning);
      }
      if (content) {
        message.content += content;
        shown.body.append(content);
      }
      if (content || reasoning) {
        first ||= performance.now();
        pieces++;
        $("status").textContent = speed();
        scroll();
      }
      if (choice.finish_reason === "length") note = "cut off at the limit";
    }
  } catch (e) {
    note = e.name === "AbortError" ? "stopped" : e.message;
    if (e.name !== "AbortError") $("status").className = "wrong";
  }
  $("status").textContent = [speed(), note].filter(Boolean).join(" · ");
  if (message.content || shown.thought.textContent) conversation.push(message);
  else shown.article.remove();
  running = null;
  busy(false);
}

function busy(on) {
  $("log").setAttribute("aria-busy", on); // a screen reader reads the answer when it is whole
  $("send").disabled = on;
  $("stop").disabled = !on;
  $("clear").disabled = on;
  $("again").disabled = on || !conversation.some((m) => m.role === "user");
  if (on) $("status").className = "";
  else $("text").focus();
}

$("form").addEventListener("submit", (e) => {
  e.preventDefault();
  const text = $("text").value.trim();
  if (running || !text) return;
  $("text").value = "";
  conversation.push({ role: "user", content: text });
  show("user", text);
  answer();
});

$("text").addEventListener("keydown", (e) => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
    e.preventDefault();
    $("form").requestSubmit();
  }
});

document.addEventListener("keydown", (e) => {
  if (e.key === "Escape") running?.abort();
});

$("stop").addEventListener("click", () => running?.abort());

$("again").addEventListener("click", () => {
  if (running) return;
  if (conversation.at(-1)?.role === "assistant") {
    conversation.pop();
    $("log").lastElementChild.remove();
  }
  answer();
});

$("clear").addEventListener("click", () => {
  conversation.length = 0;
  $("log").replaceChildren();
  $("status").textContent = "";
  busy(false);
});

// connect shows the model's name, once the server has one.
async function connect() {
  try {
    const response = await fetch("v1/models", { headers: headers() });
    if (response.status === 401) {
      $("model").textContent = "the server wants an API key: see Settings";
      document.querySelector("footer details").open = true;
      return;
    }
    const { data } = await response.json();
    if (data.length > 0) {
      $("model").textContent = data[0].id;
      return;
    }
    $("model").textContent = "the model is loading…";
  } catch {
    $("model").textContent = "the server cannot be reached";
  }
  setTimeout(connect, 1000);
}

$("key").addEventListener("change", connect);
connect();
