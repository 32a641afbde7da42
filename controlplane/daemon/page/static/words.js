// Write numbers and times for people.

/** A time span: 320 ms, 4.2 s, 3 min 12 s, 2 h 5 min. */
export function span(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(Math.round(seconds) / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds) % 60} s`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

/** A number of bytes in powers of 1,024. */
export function size(bytes) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (bytes < 1024) return unit === "B" ? `${bytes} B` : `${bytes.toFixed(1)} ${unit}`;
    bytes /= 1024;
  }
  return `${bytes.toFixed(1)} TiB`;
}

/** A moment (Unix time, s) in the reader's own time. */
export function moment(seconds, exact = false) {
  const at = new Date(seconds * 1000);
  const date = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  const clock = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  return exact ? `${clock}.${String(at.getMilliseconds()).padStart(3, "0")}` : `${date} ${clock}`;
}

/** The reader's own time zone: its name, and its offset from UTC now. */
export function zone() {
  const minutes = -new Date().getTimezoneOffset();
  const size = Math.abs(minutes);
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return minutes === 0 && name === "UTC" ? "UTC" : `${name}, UTC${minutes < 0 ? "-" : "+"}${pad(Math.floor(size / 60))}:${pad(size % 60)}`;
}

/** A share as per cent. */
export function percent(share) {
  return `${(100 * share).toFixed(share > 0.9995 || share < 0.0995 ? 2 : 1)} %`;
}

/** A count, or a dash when there is none. */
export function count(number) {
  return number === null || number === undefined || number < 0 ? "–" : number.toLocaleString("en");
}

/** "1 failure", "2 failures". */
export function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

const REASON_MAX = 140;

/** A reason for a table cell: its first line, without its middle when that is too long. */
export function brief(text) {
  const [first, ...more] = text.trim().split("\n");
  const half = Math.floor((REASON_MAX - 5) / 2);
  if (first.length > REASON_MAX) return `${first.slice(0, half)} ... ${first.slice(-half)}`;
  return more.length ? `${first} ...` : first;
}

/** What has another name for people; as in_words in controlplane/core/records/words.py. */
export const SHOWN = { signaled: "killed" };

/** An identifier as words: its underscores become blanks. */
export function plain(word) {
  return SHOWN[word] ?? word.replaceAll("_", " ");
}

function pad(number) {
  return String(number).padStart(2, "0");
}
