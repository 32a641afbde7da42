// The colours of what time is spent on: the same in bars of incidents, of jobs, and by the minute.

const KINDS = {
  s0: ["training"],
  s1: ["reform", "forming", "waiting", "resized"],
  s2: ["slow_rank", "data"],
  s4: ["restore"],
  s5: ["unknown"],
  s6: ["fence"],
  s7: ["first_step", "startup", "compile"],
  s8: ["redone"],
  s9: ["snapshot", "checkpoint", "evaluate"],
  s10: ["decide"],
};
/** The parts of a step, in their order, and their colours. Parts that are causes of lost time too have the same one there. */
export const PARTS = { data: "s2", forward: "s7", backward: "s4", communication: "s6", optimizer: "s1", snapshot: "s9", other: "s5" };
const FAILURE = "s3";
const BY_NAME = new Map(Object.entries(KINDS).flatMap(([colour, names]) => names.map((name) => [name, colour])));

/** The class of a phase of an incident, or of a cause of lost time. All kinds of failure, and the time until one is detected, have one colour. */
export function colour(name) {
  return BY_NAME.get(name) ?? FAILURE;
}
