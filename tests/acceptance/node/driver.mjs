// Does what a test asks: one JSON object a line on stdin, one a line on stdout.
//   {id, code, args, prefix}  ->  {id, value} or {id, error}
// `code` is the body of an async function. It sees bullmq's classes, the arguments by their names,
// and the helpers below, which keep what they have made until the test is over ({id, reset: true}).
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

console.log = console.error; // stdout is for answers
const [modules, packageName, redisUrl] = process.argv.slice(2);
const load = createRequire(modules + "/");
const bullmq = load(packageName);
const Redis = load("ioredis");
const AsyncFunction = (async () => {}).constructor;

const connection = new Redis(redisUrl, { maxRetriesPerRequest: null });
let prefix = "";
let made = [];
const kept = new Map();

function keep(key, make) {
  if (!kept.has(key)) {
    const item = make();
    item.on?.("error", (error) => process.stderr.write(`${key}: ${error.stack}\n`));
    kept.set(key, item);
    made.push(item);
  }
  return kept.get(key);
}

const helpers = {
  ...bullmq,
  redis: connection,
  queue: (lane = "worker") =>
    keep(`queue ${lane}`, () => new bullmq.Queue(`${prefix}-${lane}`, { connection })),
  flows: () => keep("flows", () => new bullmq.FlowProducer({ connection })),
  // Its stream is read from the beginning: nothing is missed, whenever it connects.
  events: (lane = "worker") =>
    keep(`events ${lane}`, () =>
      new bullmq.QueueEvents(`${prefix}-${lane}`, { connection, lastEventId: "0" })),
  work: (processor, options = {}, lane = "worker") =>
    keep(`worker ${made.length}`, () =>
      new bullmq.Worker(`${prefix}-${lane}`, processor, {
        connection, lockDuration: 2000, stalledInterval: 2000, ...options,
      })),
  seen: (job) => ({
    id: job.id, name: job.name, data: job.data, opts: job.opts,
    attemptsMade: job.attemptsMade, priority: job.priority,
  }),
  until: async (holds) => {
    while (!(await holds())) await new Promise((done) => setTimeout(done, 5));
  },
  // What a job has returned, and why one has failed.
  result: (job) => job.waitUntilFinished(helpers.events(), 15000),
  reason: (job) => helpers.result(job).catch((error) => error.message),
  workers: () => made.filter((item) => item instanceof bullmq.Worker),
};

async function reset() {
  const closing = made.reverse();
  made = [];
  kept.clear();
  // Workers are not waited for: a test that failed may have left one in the middle of a job.
  await Promise.all(closing.map((item) => item.close(item instanceof bullmq.Worker)));
}

async function answer({ code, args, prefix: asked, reset: isReset }) {
  if (isReset) return reset();
  prefix = asked;
  const known = { ...helpers, ...args };
  return new AsyncFunction(...Object.keys(known), code)(...Object.values(known));
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  answer(request).then(
    (value) => ({ id: request.id, value: value ?? null }),
    (error) => ({ id: request.id, error: error?.stack ?? String(error) }),
  ).then((told) => process.stdout.write(JSON.stringify(told) + "\n"));
}
process.exit(0);
