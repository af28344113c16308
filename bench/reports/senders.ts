import { readFileSync } from 'node:fs';
import https from 'node:https';

// Sends reviews or reports until it is killed. Open loop, paced by the clock; or, for a flood, as fast as answers come.

const [kind = '', port = '', perSecond = '0', connections = '1', body = ''] = process.argv.slice(2);
const agent = new https.Agent({
  keepAlive: true,
  maxSockets: Number(connections),
  rejectUnauthorized: false,
});
const times: number[] = [];

function post(path: string, text: string | Buffer, token = ''): Promise<string> {
  const began = performance.now();
  const headers = { authorization: `Bearer ${token}` };
  return new Promise((resolve) => {
    const options = { agent, host: '127.0.0.1', port: Number(port), method: 'POST', path, headers };
    const request = https.request(options, (response) => {
      response.resume().on('end', () => {
        times.push(performance.now() - began);
        resolve(String(response.headers['linger-cursor'] ?? ''));
      });
    });
    request.on('error', () => resolve(''));
    request.end(text);
  });
}

const cursors = new Map<string, string>();
async function report(instance: string): Promise<void> {
  const cursor = cursors.get(instance) ?? '';
  cursors.set(instance, await post('/v1/consumers/edge/reports', JSON.stringify({ cursor }), instance));
}

if (kind === 'flood') {
  for (let each = 0; each < Number(connections); each++)
    void (async () => {
      for (;;) await report('flooding');
    })();
} else {
  const review = kind === 'reviews' ? readFileSync(body) : '';
  const began = performance.now();
  let sent = 0;
  setInterval(() => {
    const due = ((performance.now() - began) / 1000) * Number(perSecond);
    for (; sent < due; sent++) {
      // 1,000 instances, one after the other.
      void (kind === 'reviews' ? post('/mutate', review) : report(`gw-${sent % 1000}`));
    }
  }, 1);
}
/** What has been timed since it was asked last, in milliseconds. */
process.on('message', () => process.send?.({ times: times.splice(0) }));
