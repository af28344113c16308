import http from 'node:http';

// Requests to an address, each on a connection of its own, by the clock. Prints each loss as a line of JSON, and the totals when
// its standard input ends: node client.ts http://10.201.0.7/ PER_SECOND

const [, , url = '', perSecond = ''] = process.argv;
const TIMEOUT_MS = 5_000;

let total = 0;
const open = new Set<Promise<void>>();

function request(): Promise<void> {
  const at = Date.now();
  return new Promise((resolve) => {
    const lose = (why: string) => {
      console.log(JSON.stringify({ at, why }));
      resolve();
    };
    const sent = http.get(url, { agent: false, timeout: TIMEOUT_MS }, (answer) => {
      answer.resume().on('end', () => (answer.statusCode === 200 ? resolve() : lose(`${answer.statusCode}`)));
    });
    sent.on('timeout', () => sent.destroy(new Error('timeout'))).on('error', ({ message }) => lose(message));
  });
}

const begun = performance.now();
const timer = setInterval(() => {
  while (total < ((performance.now() - begun) / 1000) * Number(perSecond)) {
    total += 1;
    const sent = request().finally(() => open.delete(sent));
    open.add(sent);
  }
}, 5);

process.stdin
  .on('end', () => {
    clearInterval(timer);
    void Promise.all(open).then(() => console.log(JSON.stringify({ total })));
  })
  .resume();
